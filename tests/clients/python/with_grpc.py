import json
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from threading import Event

import grpc

from scenarios import run

SERVICE = "ledger.Ledger"


class Ledger:
    """A destination that speaks gRPC, with bytes for messages, and counts."""

    def __init__(self, port):
        self.calls = []
        self.may_answer = Event()
        methods = {
            "Pay": grpc.unary_unary_rpc_method_handler(self.pay),
            "Late": grpc.unary_unary_rpc_method_handler(self.late),
            "Refuse": grpc.unary_unary_rpc_method_handler(self.refuse),
            "Count": grpc.unary_stream_rpc_method_handler(self.count),
            "Sum": grpc.stream_unary_rpc_method_handler(self.sum),
            "Echo": grpc.stream_stream_rpc_method_handler(self.echo),
        }
        self.server = grpc.server(ThreadPoolExecutor(8))
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        self.server.add_insecure_port(f"127.0.0.1:{port}")
        self.server.start()

    def pay(self, request, context):
        self.calls.append("Pay")
        context.set_trailing_metadata((("paid-bin", b"\x00\xff"), ("number", str(len(self.calls)))))
        return b"paid " + request

    def late(self, request, context):
        self.calls.append("Late")
        self.may_answer.wait(20)
        return b"late"

    def refuse(self, request, context):
        self.calls.append("Refuse")
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no money: 5 € short")

    def count(self, request, context):
        self.calls.append("Count")
        for number in range(int(request)):
            yield str(number).encode()

    def sum(self, requests, context):
        self.calls.append("Sum")
        return str(sum(len(request) for request in requests)).encode()

    def echo(self, requests, context):
        self.calls.append("Echo")
        yield from requests


def _call(call, request, key=None):
    metadata = (("authorization", "Bearer alice"),) + ((("idempotency-key", key),) if key else ())
    try:
        answer, done = call.with_call(request, metadata=metadata, timeout=20)
    except grpc.RpcError as error:
        return {"code": error.code().name, "details": error.details()}
    trailers = dict(done.trailing_metadata())
    replayed = dict(done.initial_metadata()).get("idempotent-replayed")
    paid = list(trailers["paid-bin"])
    return {"answer": answer.decode(), "number": trailers["number"], "paid": paid, "replayed": replayed}


def calls(address, port):
    """Every kind of call, and a guarded one twice."""
    ledger = Ledger(port)
    with grpc.insecure_channel(address) as channel:
        pay = channel.unary_unary(f"/{SERVICE}/Pay")
        first, again = _call(pay, b"5", "k"), _call(pay, b"5", "k")
        changed = _call(pay, b"6", "k")
        refuse = channel.unary_unary(f"/{SERVICE}/Refuse")
        refused = [_call(refuse, b"5", "r") for _ in range(2)]
        counted = [int(number) for number in channel.unary_stream(f"/{SERVICE}/Count")(b"100", timeout=20)]
        summed = int(channel.stream_unary(f"/{SERVICE}/Sum")((b"x" * 100_000 for _ in range(50)), timeout=20))
        # Each word is said once the one before has come back.
        words, echoed = Queue(), []
        words.put(b"0")
        for word in channel.stream_stream(f"/{SERVICE}/Echo")(iter(words.get, None), timeout=20):
            echoed.append(word.decode())
            words.put(str(len(echoed)).encode() if len(echoed) < 5 else None)
    ledger.server.stop(0)
    return {
        "first": first,
        "again": again,
        "changed": changed,
        "refused": refused,
        "counted": counted == list(range(100)),
        "summed": summed,
        "echoed": echoed,
        "calls": ledger.calls,
    }


def late(address, port):
    """A call that is answered too late, on a channel that repeats."""
    ledger = Ledger(port)
    policy = {"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "0.1s", "backoffMultiplier": 1}
    policy["retryableStatusCodes"] = ["UNAVAILABLE", "UNKNOWN"]
    config = {"methodConfig": [{"name": [{"service": SERVICE}], "retryPolicy": policy}]}
    options = [("grpc.service_config", json.dumps(config))]
    with grpc.insecure_channel(address, options=options) as channel:
        call = channel.unary_unary(f"/{SERVICE}/Late")
        told = [_call(call, b"5", "k") for _ in range(2)]
    ledger.may_answer.set()
    ledger.server.stop(0)
    return {"told": told, "calls": ledger.calls}


run(calls, late)
