"""Runs the scenario that the first argument names with the options in the
second, and prints a line of JSON for each step and one for the result."""

import json
import sys


def _print(line):
    print(json.dumps(line), flush=True)


def step(step):
    """Tells the test that a step has come about."""
    _print({"step": step})


def run(*scenarios):
    named = {scenario.__name__: scenario for scenario in scenarios}
    name, options = sys.argv[1:]
    _print({"result": named[name](**json.loads(options))})
