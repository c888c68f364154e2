import ssl
from concurrent.futures import ThreadPoolExecutor

import httpx

from scenarios import run, step

PAYMENT = {"json": {"amount": 5}}


def _client(ca=None, http2=False, **options):
    verify = ssl.create_default_context(cadata=ca) if ca else True
    return httpx.Client(verify=verify, http2=http2, trust_env=False, timeout=30, **options)


def _keyed(key):
    return {"Authorization": "Bearer alice", "Idempotency-Key": key}


def _heard(answer):
    return {
        "status": answer.status_code,
        "version": answer.http_version,
        "outcome": answer.headers.get("onceward-outcome"),
        "replayed": answer.headers.get("idempotent-replayed"),
        "body": answer.text,
    }


def twice(url, **options):
    """The same payment twice, and something that is not guarded in between."""
    with _client(**options) as client:
        first = client.post(f"{url}/pay", headers=_keyed("k"), **PAYMENT)
        between = client.get(f"{url}/other")
        again = client.post(f"{url}/pay", headers=_keyed("k"), **PAYMENT)
        return [_heard(first), _heard(between), _heard(again)]


def leave(url, **options):
    """Runs out of time, and asks again."""
    with _client(**options) as client:
        try:
            client.post(f"{url}/pay", headers=_keyed("k"), **PAYMENT, timeout=2)
        except httpx.ReadTimeout:
            step("left")
        return _heard(client.post(f"{url}/pay", headers=_keyed("k"), **PAYMENT))


def upload(url, chunks, size, **options):
    """Sends a body as it is made, of which httpx knows no length."""
    body = (bytes([number]) * size for number in range(chunks))
    with _client(**options) as client:
        return _heard(client.post(url, headers=_keyed("k"), content=body))


def stream(url, **options):
    """Reads an answer as it comes."""
    with _client(**options) as client:
        with client.stream("POST", f"{url}/pay", headers=_keyed("k"), **PAYMENT) as answer:
            said = ""
            for text in answer.iter_text():
                said += text
                step(text)
        return {"status": answer.status_code, "version": answer.http_version, "body": said}


def crowd(url, keys, **options):
    """All keys twice at once, on one client."""
    with _client(**options) as client, ThreadPoolExecutor(keys * 2) as threads:
        pay = lambda number: _heard(client.post(f"{url}/pay", headers=_keyed(f"k-{number % keys}"), **PAYMENT))
        return list(threads.map(pay, range(keys * 2)))


def stopped(url, **options):
    """What becomes of a payment when the proxy is stopped."""
    with _client(**options) as client:
        try:
            return _heard(client.post(f"{url}/pay", headers=_keyed("k"), **PAYMENT))
        except httpx.TransportError as error:
            step(type(error).__name__)


run(twice, leave, upload, stream, crowd, stopped)
