import json

import urllib3

from scenarios import run, step


def pay(url, retries, timeout, statuses):
    """Pays with a policy that repeats everything, whatever the method."""
    policy = urllib3.Retry(
        retries, allowed_methods=None, status_forcelist=statuses, backoff_factor=0.1, raise_on_status=False
    )
    step("begun")
    answer = urllib3.PoolManager().request(
        "POST",
        f"{url}/pay",
        body=json.dumps({"amount": 5}),
        headers={"Authorization": "Bearer alice", "Content-Type": "application/json", "Idempotency-Key": "k"},
        retries=policy,
        timeout=timeout,
    )
    return {
        "status": answer.status,
        "outcome": answer.headers.get("onceward-outcome"),
        "body": answer.data.decode(),
        "repeats": len(answer.retries.history),
    }


run(pay)
