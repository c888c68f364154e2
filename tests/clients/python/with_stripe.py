import stripe

from scenarios import run, step


def pay(host, port, retries, timeout, key, amounts):
    """Pays with a key that the SDK makes, or once for every amount with the
    key that is given."""
    client = stripe.StripeClient(
        "sk_test_1",
        base_addresses={"api": f"http://{host}:{port}"},
        max_network_retries=retries,
        http_client=stripe.RequestsClient(timeout=timeout / 1000),
    )
    results = []
    for amount in amounts:
        options = {"idempotency_key": key} if key else {}
        try:
            made = client.v1.payment_intents.create({"amount": amount, "currency": "eur"}, options)
            results.append({"id": made.id, "replayed": made.last_response.headers.get("idempotent-replayed")})
        except stripe.StripeError as error:
            results.append(
                {
                    "error": type(error).__name__,
                    "status": error.http_status,
                    "code": error.error.code if error.error else None,
                    "message": error.user_message or str(error),
                    "advice": (error.headers or {}).get("stripe-should-retry"),
                }
            )
        step(len(results))
    return results


run(pay)
