"""Makes compare.sh's report of its measurements: medians, and ratios of lines of the same round.

    report.py LINES FACTS [JSON]

LINES has one JSON object for each measured line and each round's yardsticks, FACTS one for the whole run. What was
not valid takes part in no ratio. With JSON everything is also written there.
"""

import json
import statistics
import sys

# What is compared, and what is to be reached (must, aim): at least or at most that.
RATIOS = [
    ("pass-haproxy", "pass-nginx", {}),
    ("pass-onceward", "pass-nginx", {"rps": (">=", 0.85, 1.0), "cpu": ("<=", 1.2, 1.05)}),
    ("pass-hyper", "pass-nginx", {}),
    ("pass-onceward", "pass-hyper", {}),
    ("pass-onceward", "pass-haproxy", {}),
    ("first-memory", "pass-nginx", {}),
    ("first-group", "pass-nginx", {"rps": (">=", 0.40, 0.58), "cpu": ("<=", 2.5, 1.8)}),
    ("first-group", "first-lua-always", {"rps": (">=", 1.6, 2.4)}),
    ("first-never", "pass-nginx", {"rps": (">=", 0.55, 0.75)}),
    ("first-redis", "first-lua", {"rps": (">=", 1.5, 1.9), "cpu": ("<=", 0.7, 0.5)}),
    ("replay-local", "replay-nginx", {"rps": (">=", 1.1, 1.5), "cpu": ("<=", 0.95, 0.65)}),
    ("replay-redis", "replay-lua", {"rps": (">=", 1.4, 2.0)}),
    ("one-nginx", "one-direct", {}),
    ("one-lua", "one-nginx", {}),
    ("one-memory", "one-nginx", {}),
    ("one-redis", "one-nginx", {}),
    ("one-redis", "one-lua", {}),
    ("one-group", "one-nginx", {}),
]

# Figures that are no plain ratio of two lines: what they are, the rows and
# yardsticks they need, how they are made of these, and at most what they should be.
FIGURES = [
    ("first-redis: Redis CPU a request, us", ["first-redis"], lambda r: r["first-redis"]["redis_cpu"], 40, 28),
    ("one-memory: p50 over nginx, us", ["one-memory", "one-nginx"], lambda r: added(r, "one-memory"), 50, 20),
    (
        "one-redis: p50 over nginx, in round trips to the Redis",
        ["one-redis", "one-nginx", "redis-command one-redis"],
        lambda r: added(r, "one-redis") / r["redis-command one-redis"]["p50"],
        3,
        2.2,
    ),
    (
        "one-group: p50 over nginx, of 2.5 fdatasync + 100 us",
        ["one-group", "one-nginx", "fdatasync one-group"],
        lambda r: added(r, "one-group") / (2.5 * r["fdatasync one-group"]["p50"] + 100),
        1,
        None,
    ),
    (
        "one-group: p50 over nginx, of 2 fdatasync + 40 us",
        ["one-group", "one-nginx", "fdatasync one-group"],
        lambda r: added(r, "one-group") / (2 * r["fdatasync one-group"]["p50"] + 40),
        None,
        1,
    ),
    (
        "first-group: p99, of nginx's and two fdatasync's",
        ["first-group", "pass-nginx", "fdatasync first-group"],
        lambda r: r["first-group"]["p99"] / (r["pass-nginx"]["p99"] + 2 * r["fdatasync first-group"]["p99"]),
        2.0,
        1.2,
    ),
]

# From which share of the server's core in other hands a run is called disturbed, and below which share in the
# server's own something else is called the limit.
DISTURBED, BUSY = 0.15, 0.9

YARDSTICKS = [
    ("redis-command one-redis", "one command to Redis, before one-redis"),
    ("fdatasync first-group", "1 KiB appended and synced, before first-group"),
    ("fdatasync one-group", "1 KiB appended and synced, before one-group"),
]

MEASURES = [("rps", "req/s"), ("p50", "p50"), ("p99", "p99"), ("cpu", "CPU/req"), ("rss", "memory")]


def added(rows, row):
    return rows[row]["p50"] - rows["one-nginx"]["p50"]


def per_request(line):
    """The line with what is counted for each request; None where a row has no such thing."""
    requests = line["requests"]
    line["rps"] = requests / line["seconds"]
    for name, total in [
        ("cpu", "cpu_us"),
        ("redis_cpu", "redis_cpu_us"),
        ("scripts", "redis_scripts"),
        ("commands", "redis_commands"),
        ("executed", "executions"),
    ]:
        line[name] = None if line[total] is None else line[total] / requests
    line["busy"] = None if line["cpu_us"] is None else line["cpu_us"] / 1e6 / line["seconds"]
    return line


class Spread:
    """The median of some rounds' values, and between what they lie."""

    def __init__(self, values):
        self.rounds = len(values)
        self.median, self.least, self.most = statistics.median(values), min(values), max(values)

    def json(self):
        return {"median": self.median, "min": self.least, "max": self.most, "rounds": self.rounds}

    def __str__(self):
        digits = 2 if self.median < 100 else 0
        if self.rounds == 1:
            return f"{self.median:.{digits}f}"
        return f"{self.median:.{digits}f} [{self.least:.{digits}f}-{self.most:.{digits}f}]"


def is_disturbed(rounds, rows):
    """Whether, in the median, something else had the server's core too while these rows were measured."""
    shares = [middle([rows_of[row] for rows_of in rounds if row in rows_of], "other") for row in rows]
    return any(share is not None and share > DISTURBED for share in shares)


def verdict(value, bound, must, aim, disturbed):
    return outcome(value, bound, must, aim) + (", but disturbed" if disturbed else "")


def outcome(value, bound, must, aim):
    reaches = (lambda limit: value >= limit) if bound == ">=" else (lambda limit: value <= limit)
    if aim is not None and reaches(aim):
        return "aim reached"
    if must is None:
        return "aim missed"
    return "must reached" if reaches(must) else "MUST MISSED"


def table(titles, rows):
    """Columns as wide as what is in them: the first to the left, the others to the right."""
    if not rows:
        return
    rows = [titles] + [["-" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(titles))]
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        print("  ".join(cells).rstrip())


def number(value, digits):
    return None if value is None else f"{value:,.{digits}f}"


def middle(lines, name):
    values = [line[name] for line in lines if line.get(name) is not None]
    return statistics.median(values) if values else None


def show_rows(rounds, rows):
    print("\nMedians over the valid rounds. Latency in us, CPU in us of user and system time a request, memory in MB.")
    print("`busy` and `other` are the shares of the server's core that the server had, and that anything else had.\n")
    shown = []
    for row in rows:
        lines = [rows_of[row] for rows_of in rounds if row in rows_of]
        if not lines:
            shown.append([row, "not valid"] + [None] * 11)
            continue
        value = lambda name: middle(lines, name)
        rss = value("rss")
        shown.append(
            [row, number(value("rps"), 0), number(value("p50"), 0), number(value("p99"), 0), number(value("cpu"), 1)]
            + [number(value("redis_cpu"), 1), number(rss and rss / 1e6, 1), number(value("busy"), 2)]
            + [number(value("other"), 2), number(value("executed"), 3), number(value("scripts"), 2)]
            + [number(value("commands"), 2), len(lines)]
        )
    titles = ["row", "req/s", "p50", "p99", "CPU", "+Redis", "memory", "busy", "other", "executed", "scripts"]
    table(titles + ["commands", "rounds"], shown)
    idle = [row[0] for row in shown if not row[0].startswith("one-") and row[7] and float(row[7]) < BUSY]
    if idle:
        print(f"\nNot limited by the server, but by the load, the destination, Redis, the disk or others: {', '.join(idle)}.")
        print("Their req/s are the least that the server could do; CPU a request compares them.")
    others = [line["other"] for rows_of in rounds for line in rows_of.values() if line.get("other") is not None]
    if others and max(others) > DISTURBED:
        print(f"\nDisturbed: up to {max(others):.0%} of the server's core, {statistics.median(others):.0%} in the median, was used by")
        print("something else. Trust what is counted; of what is timed only CPU, and that with its spread.")


def show_yardsticks(rounds):
    shown = []
    for name, what in YARDSTICKS:
        measured = [rows_of[name] for rows_of in rounds if name in rows_of]
        if measured:
            p50, p99 = (Spread([line[measure] for line in measured]) for measure in ("p50", "p99"))
            shown.append([what, p50, p99])
    if shown:
        print("\nWhat was waited for, alone, in us.\n")
        table(["", "p50", "p99"], shown)


def make_ratios(rounds, selected):
    made, missing = [], []
    for row, base, bounds in RATIOS:
        if row not in selected or base not in selected:
            continue
        pairs = [(rows_of[row], rows_of[base]) for rows_of in rounds if row in rows_of and base in rows_of]
        if not pairs:
            missing.append(f"{row} / {base}")
            continue
        for measure, title in MEASURES:
            values = [a[measure] / b[measure] for a, b in pairs if a[measure] and b[measure]]
            if not values:
                continue
            spread = Spread(values)
            entry = {"of": row, "to": base, "measure": title, **spread.json()}
            if measure in bounds:
                bound, must, aim = bounds[measure]
                said = verdict(spread.median, bound, must, aim, is_disturbed(rounds, [row, base]))
                entry.update(bound=bound, must=must, aim=aim, verdict=said)
            made.append((entry, spread))
    return made, missing


def show_ratios(made, missing):
    if made or missing:
        print("\nRatios of lines of the same round: median [least-most].\n")
    by_pair = {}
    for entry, spread in made:
        by_pair.setdefault((entry["of"], entry["to"]), {})[entry["measure"]] = spread
    titles = [title for _, title in MEASURES]
    pairs = [[f"{of} / {to}"] + [found.get(title) for title in titles] for (of, to), found in by_pair.items()]
    table(["ratio"] + titles, pairs)
    for pair in missing:
        print(f"{pair}: no round has both, valid")


def make_figures(rounds):
    made = []
    for what, needs, make, must, aim in FIGURES:
        values = [make(rows_of) for rows_of in rounds if all(need in rows_of for need in needs)]
        if values:
            spread = Spread(values)
            said = verdict(spread.median, "<=", must, aim, is_disturbed(rounds, needs))
            made.append(({"figure": what, **spread.json(), "bound": "<=", "must": must, "aim": aim, "verdict": said}, spread))
    return made


def show_verdicts(ratios, figures):
    shown = []
    for entry, spread in ratios:
        if "verdict" in entry:
            name = f"{entry['of']} / {entry['to']}: {entry['measure']}"
            shown.append([name, spread, entry["bound"], entry["must"], entry["aim"], entry["verdict"]])
    shown += [[e["figure"], spread, e["bound"], e["must"], e["aim"], e["verdict"]] for e, spread in figures]
    if shown:
        print("\nWhat is to be reached.\n")
        table(["", "here", "", "must", "aim", ""], shown)


def main():
    lines = [json.loads(line) for line in open(sys.argv[1])]
    facts = json.load(open(sys.argv[2]))
    rounds = [{} for _ in range(facts["rounds"])]
    not_valid = []
    for line in lines:
        if "not_valid" in line:
            not_valid.append(line)
        else:
            # A yardstick has no requests of its own.
            rounds[line["round"] - 1][line["row"]] = per_request(line) if "requests" in line else line
    show_rows(rounds, facts["rows"])
    show_yardsticks(rounds)
    ratios, missing = make_ratios(rounds, facts["rows"])
    show_ratios(ratios, missing)
    figures = make_figures(rounds)
    show_verdicts(ratios, figures)
    if not_valid:
        print("\nNot valid, and in none of the figures above:")
        for line in not_valid:
            print(f"  round {line['round']} {line['row']}: {line['not_valid']}")
    if facts["skipped"]:
        print("\nSkipped:")
        for what in facts["skipped"]:
            print(f"  {what}")
    if len(sys.argv) > 3:
        whole = {**facts, "lines": lines, "ratios": [e for e, _ in ratios], "figures": [e for e, _ in figures]}
        with open(sys.argv[3], "w") as file:
            json.dump(whole, file, indent=2)
            file.write("\n")


main()
