#!/usr/bin/env bash
# Onceward beside what else one would put before a write API: nginx and HAProxy
# as plain proxies, nginx with an idempotency script over Redis, an nginx cache
# hit. Every line is measured in turn within each round, and only lines of one
# round are compared. README.md says how to read what comes out.
#
# It starts what it measures on free ports of loopback, keeps its files in a
# temporary folder, and ends by pid what it started.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=$here/peers
# Servers are in places that are not on every user's path.
PATH=$PATH:/usr/sbin:/sbin

CONNECTIONS=64
WARM_UP_SECONDS=1
# Replays past the local cache: more records than are replayed in the second
# for which a node keeps one, so that each has left it when its turn comes again.
RECORDS=40000

# name, server, load, connections, what the destination executes of it
rows=(
  "pass-nginx       nginx            plain $CONNECTIONS all"
  "pass-haproxy     haproxy          plain $CONNECTIONS all"
  "pass-hyper       hyper            plain $CONNECTIONS all"
  "pass-onceward    onceward-memory  plain $CONNECTIONS all"
  "first-memory     onceward-memory  fresh $CONNECTIONS all"
  "first-group      onceward-group   fresh $CONNECTIONS all"
  "first-never      onceward-never   fresh $CONNECTIONS all"
  "first-redis      onceward-redis   fresh $CONNECTIONS all"
  "first-lua        lua              fresh $CONNECTIONS all"
  "first-lua-always lua-always       fresh $CONNECTIONS all"
  "replay-nginx     nginx            same  $CONNECTIONS none"
  "replay-local     onceward-group   same  $CONNECTIONS none"
  "replay-redis     onceward-redis   cycle $CONNECTIONS none"
  "replay-lua       lua              cycle $CONNECTIONS none"
  "one-direct       direct           fresh 1 all"
  "one-nginx        nginx            fresh 1 all"
  "one-memory       onceward-memory  fresh 1 all"
  "one-redis        onceward-redis   fresh 1 all"
  "one-group        onceward-group   fresh 1 all"
  "one-lua          lua              fresh 1 all"
)

usage() {
  cat <<USAGE
Measures Onceward beside its peers and prints ratios.

Usage: benches/compare.sh [OPTIONS]

  --rounds N            Rounds; each measures every row once [default: 5]
  --seconds S           Seconds a row is measured, after $WARM_UP_SECONDS of warming up [default: 5]
  --only ROW[,ROW]      Only these rows, or groups of rows: pass, first, replay, one
  --json FILE           Also write everything that was measured to FILE
  --binary PATH         The onceward to measure [default: made by cargo build --release]
  --help                Print this

Rows: $(for row in "${rows[@]}"; do printf '%s ' "${row%% *}"; done)

The exit status is 0 if all that was measured was valid, 1 if something was not (an error
among the answers, another number of executions than there should be, a server that did
not start), 2 on wrong usage or where what is needed is not installed. Ratios that miss
their aim do not change it.

The servers' files are in a temporary folder under TMPDIR, or else /var/tmp: it has to be on
the disk whose fsync is to be measured.

Example: benches/compare.sh --rounds 3 --only pass,first-redis,first-lua
USAGE
}

misuse() {
  printf 'compare.sh: %s\nRun it with --help for what it takes.\n' "$1" >&2
  exit 2
}

say() { printf '%s\n' "$*" >&2; }

# ---------------------------------------------------------------- arguments

rounds=5 seconds=5 only='' json='' binary=''
while [ $# -gt 0 ]; do
  option=$1 value=${2-}
  case $option in
    --*=*) option=${1%%=*} value=${1#*=} ;;
  esac
  case $option in
    --help | -h) usage; exit 0 ;;
    --rounds | --seconds | --only | --json | --binary)
      [ -n "$value" ] || misuse "$option needs a value"
      case $1 in *=*) shift ;; *) shift 2 ;; esac
      ;;
    *) misuse "there is no option $1" ;;
  esac
  case $option in
    --rounds) rounds=$value ;;
    --seconds) seconds=$value ;;
    --only) only=$value ;;
    --json) json=$value ;;
    --binary) binary=$value ;;
  esac
done
[[ $rounds =~ ^[1-9][0-9]{0,2}$ ]] || misuse "--rounds takes a number from 1 to 999, not '$rounds'"
[[ $seconds =~ ^[1-9][0-9]{0,2}$ ]] || misuse "--seconds takes a number from 1 to 999, not '$seconds'"

# Keeps the rows that --only names, or whose group it names.
select_rows() {
  local name row kept=()
  for name in ${only//,/ }; do
    printf '%s\n' "${rows[@]}" | grep -qE "^${name}[ -]" || misuse "--only: there is no row or group '$name'"
  done
  for row in "${rows[@]}"; do
    case ,$only, in
      *,"${row%% *}",* | *,"${row%%-*}",*) kept+=("$row") ;;
    esac
  done
  rows=("${kept[@]}")
}
[[ $only =~ ^([a-z-]+(,[a-z-]+)*)?$ ]] || misuse "--only takes names of rows with commas between them, not '$only'"
[ -z "$only" ] || select_rows
if [ -n "$json" ]; then
  { : >>"$json"; } 2>/dev/null || misuse "--json: $json cannot be written"
fi

# ------------------------------------------------------- what is needed

is_there() { command -v "$1" >/dev/null 2>&1; }

missing=()
for need in wrk:wrk nginx:nginx curl:curl python3:python3 taskset:util-linux pgrep:procps; do
  is_there "${need%%:*}" || missing+=("${need##*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
  say "compare.sh: nothing can be measured without: ${missing[*]}"
  say "Install it: apt-get install ${missing[*]}"
  exit 2
fi

# Debian's packages that a server needs and that are not there.
packages_missing_for() {
  case $1 in
    haproxy) is_there haproxy || echo haproxy ;;
    onceward-redis | lua | lua-always)
      is_there redis-server && is_there redis-cli && is_there redis-benchmark || echo redis-server redis-tools
      ;;
  esac
  case $1 in
    lua | lua-always)
      [ -e /usr/lib/nginx/modules/ngx_http_lua_module.so ] || echo libnginx-mod-http-lua
      [ -e /usr/share/lua/5.1/nginx/redis.lua ] || echo lua-nginx-redis
      ;;
  esac
}

if [ -z "$binary" ]; then
  is_there cargo || misuse "there is no cargo to build onceward with; name one that is built with --binary"
  (cd "$here/.." && cargo build --release --locked --bins --examples)
  target=$(cd "$here/.." && cargo metadata --format-version 1 --no-deps --locked |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
  binary=$target/release/onceward
fi
# The least that a proxy on hyper can be, made along with onceward.
plain=$(dirname "$binary")/examples/plain_proxy
version=$("$binary" --version 2>/dev/null) || misuse "--binary: $binary cannot be run"

# ------------------------------------------------------------ folder, end

folder=$(mktemp -d "${TMPDIR:-/var/tmp}/onceward-compare.XXXXXX")
# The servers' files, which go with each line.
run=$folder/run
pids=() wrk_pid=''

# Ends what runs, nginx's workers too where their master cannot do it.
stop_all() {
  local pid all=() left
  [ -z "$wrk_pid" ] || pids+=("$wrk_pid")
  for pid in ${pids[@]+"${pids[@]}"}; do
    mapfile -t -O ${#all[@]} all < <(echo "$pid"; pgrep -P "$pid")
  done
  for pid in ${pids[@]+"${pids[@]}"}; do kill -TERM "$pid" 2>/dev/null || true; done
  for _ in $(seq 150); do
    left=()
    for pid in ${all[@]+"${all[@]}"}; do
      if kill -0 "$pid" 2>/dev/null; then left+=("$pid"); fi
    done
    [ ${#left[@]} -gt 0 ] || break
    sleep 0.1
  done
  for pid in ${left[@]+"${left[@]}"}; do kill -KILL "$pid" 2>/dev/null || true; done
  for pid in ${pids[@]+"${pids[@]}"}; do wait "$pid" 2>/dev/null || true; done
  pids=() wrk_pid=''
}

clean_up() {
  stop_all
  rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

skipped=()
disk=$(stat -f -c %T "$folder")
case $disk in
  tmpfs | ramfs)
    is_on_disk=no
    say "$folder is in memory, where an fsync costs nothing: rows that sync are skipped. Set TMPDIR to a folder on a disk."
    ;;
  *) is_on_disk=yes ;;
esac

runnable=()
install=()
for row in "${rows[@]}"; do
  read -r name server _ <<<"$row"
  mapfile -t packages < <(packages_missing_for "$server" | tr ' ' '\n')
  if [ ${#packages[@]} -gt 0 ]; then
    skipped+=("$name: not installed: ${packages[*]}")
    install+=("${packages[@]}")
  elif [ "$server" = hyper ] && [ ! -x "$plain" ]; then
    skipped+=("$name: there is no $plain; cargo build --release --example plain_proxy makes it")
  elif [ $is_on_disk = no ] && [[ $server =~ -(group|always)$ ]]; then
    skipped+=("$name: $folder is in memory, where an fsync costs nothing")
  else
    runnable+=("$row")
  fi
done
if [ ${#install[@]} -gt 0 ]; then
  skipped+=("to install what is missing: apt-get install $(printf '%s\n' "${install[@]}" | sort -u | paste -sd ' ')")
fi
for what in ${skipped[@]+"${skipped[@]}"}; do say "skipped: $what"; done
if [ ${#runnable[@]} = 0 ]; then
  say "compare.sh: nothing is left to measure"
  exit 2
fi

# ------------------------------------------------------------------ cores

# The first core that this process may use is the server's. The load, the
# destination and Redis get the next one that is no other thread of the same
# core.
choose_cores() {
  python3 - <<'CORES'
import os
def siblings(cpu):
    try:
        text = open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read()
    except OSError:
        return {cpu}
    ranges = (part.split("-") for part in text.strip().split(","))
    return {n for first, *last in ranges for n in range(int(first), int(last[0] if last else first) + 1)}
cpus = sorted(os.sched_getaffinity(0))
apart = [cpu for cpu in cpus if cpu not in siblings(cpus[0])]
beside = [cpu for cpu in cpus if cpu != cpus[0]]
print(cpus[0], (apart or beside or cpus)[0], "cores" if apart else "threads" if beside else "one")
CORES
}
read -r server_core load_core cores < <(choose_cores)
case $cores in
  threads) say "The two cores are threads of one core and slow each other down: trust CPU a request, not req/s." ;;
  one)
    say "There is one core: the server has to share it with load, destination and Redis. Then req/s and latency are"
    say "those of all together, their ratios are nearer to 1 than they should be, and only CPU a request tells them apart."
    ;;
esac

free_ports() {
  python3 - "$1" <<'PORTS'
import random, socket, sys
# Below the range from which the kernel takes ports for clients.
held, ports = [], random.sample(range(15000, 30000), 200)
for port in ports:
    s = socket.socket()
    try:
        s.bind(("127.0.0.1", port))
    except OSError:
        continue
    held.append((s, port))
    if len(held) == int(sys.argv[1]):
        break
print(*(port for _, port in held))
PORTS
}
read -r destination_port server_port admin_port redis_port < <(free_ports 4)
ticks_us=$((1000000 / $(getconf CLK_TCK)))

# ---------------------------------------------------------------- servers

clear_run() {
  rm -rf "$run"
  mkdir "$run"
}

# A configuration of peers/ with this run's ports and folders in it.
render() {
  sed -e "s|@server@|$server_port|g" -e "s|@admin@|$admin_port|g" -e "s|@destination@|$destination_port|g" \
    -e "s|@redis@|$redis_port|g" -e "s|@folder@|$run|g" -e "s|@peers@|$peers|g" -e "s|@store@|${store-}|g" \
    "$peers/$1" >"$run/$1"
}

# start NAME CORE PORT COMMAND...: starts it and waits until the port answers.
start() {
  local name=$1 core=$2 port=$3
  shift 3
  taskset -c "$core" "$@" >"$run/$name.log" 2>&1 &
  started=$!
  pids+=("$started")
  for _ in $(seq 200); do
    if ! kill -0 "$started" 2>/dev/null; then break; fi
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return 0; fi
    sleep 0.05
  done
  why="$name did not start: $(cat "$run/$name.log" "$run"/*.error.log 2>/dev/null | tail -n 3 | tr '\n' ' ')"
  return 1
}

start_nginx() {
  local globals=''
  # Else the worker is another user, who may not look into the folder.
  [ "$EUID" != 0 ] || globals='user root;'
  render "$1.conf"
  start "$1" "$2" "$3" nginx -p "$run" -c "$run/$1.conf" -e "$run/$1.error.log" -g "$globals"
}

start_redis() {
  render redis.conf
  start redis "$load_core" "$redis_port" redis-server "$run/redis.conf" "$@" || return 1
  redis_pid=$started
}

start_onceward() {
  render onceward.yaml
  start onceward "$server_core" "$server_port" "$binary" serve --config "$run/onceward.yaml" --log-level warn
}

# Starts what a row needs, each time anew. The server's pids are in `server_pids`.
start_server() {
  local store
  redis_pid='' server_pids=()
  clear_run
  start_nginx destination "$load_core" "$destination_port" || return 1
  url=http://127.0.0.1:$server_port
  case $1 in
    direct) url=http://127.0.0.1:$destination_port; return 0 ;;
    nginx) start_nginx nginx "$server_core" "$server_port" ;;
    haproxy)
      render haproxy.cfg
      start haproxy "$server_core" "$server_port" haproxy -db -f "$run/haproxy.cfg"
      ;;
    hyper) start hyper "$server_core" "$server_port" "$plain" "127.0.0.1:$server_port" "127.0.0.1:$destination_port" ;;
    lua) start_redis && start_nginx lua "$server_core" "$server_port" ;;
    lua-always)
      start_redis --appendonly yes --appendfsync always && start_nginx lua "$server_core" "$server_port"
      ;;
    onceward-memory) store="memory: { capacity: 16GiB }" && start_onceward ;;
    onceward-group) store="embedded: { path: $run/records, sync: group }" && start_onceward ;;
    onceward-never) store="embedded: { path: $run/records, sync: never }" && start_onceward ;;
    onceward-redis)
      store="redis: { url: 'redis://127.0.0.1:$redis_port' }"
      start_redis && start_onceward
      ;;
  esac || return 1
  mapfile -t server_pids < <(echo "$started"; pgrep -P "$started")
}

# ----------------------------------------------------------------- counts

# User and system time of processes, in ticks.
ticks_of() {
  local pid sum=0 fields
  for pid in "$@"; do
    # The name in parentheses may hold spaces.
    fields=$(sed 's/^.*) //' "/proc/$pid/stat") || return 1
    sum=$((sum + $(awk '{ print $12 + $13 }' <<<"$fields")))
  done
  echo "$sum"
}

# What processes, and other machines on the same hardware, took of the server's
# core, in ticks. Interrupts are left out: with most kernels they are in no
# process's time, and the load makes them.
core_ticks() { awk -v cpu="cpu$server_core" '$1 == cpu { print $2 + $3 + $4 + $9 }' /proc/stat; }

resident_bytes() {
  local pid sum=0
  for pid in "$@"; do
    sum=$((sum + $(awk '/^VmRSS:/ { print $2 }' "/proc/$pid/status") * 1024))
  done
  echo "$sum"
}

# Requests that the destination took, without the ones that ask for that.
executions() {
  local now
  now=$(curl -sf "http://127.0.0.1:$destination_port/status" | awk 'NR == 3 { print $3 }') ||
    { why="the destination does not say how often it was asked"; return 1; }
  asked=$((asked + 1))
  executed=$((now - asked))
}

# As many as there are once nothing is on its way any more: an exchange may go
# on without its client.
settled_executions() {
  local before=-1
  for _ in $(seq 100); do
    executions || return 1
    [ "$executed" != "$before" ] || return 0
    before=$executed
    sleep 0.1
  done
  why="the destination is still asked ten seconds after the load"
  return 1
}

# Commands that Redis ran and those of them that are scripts; those that look
# at it are not counted, those inside scripts are.
redis_counts() {
  redis-cli -p "$redis_port" info commandstats | tr -d '\r' | awk -F '[:=,]' '
    /^cmdstat_(info|config|client|hello)/ { next }
    /^cmdstat_/ { commands += $3 }
    /^cmdstat_(evalsha|eval|fcall)/ { scripts += $3 }
    END { if (commands) print commands, scripts + 0 }'
}

# How many claims Onceward answered from its own memory.
cache_hits() {
  curl -sf "http://127.0.0.1:$admin_port/metrics" | awk '$1 == "onceward_cache_hits_total" { print $2; n++ } END { exit !n }'
}

# ----------------------------------------------------------------- a line

# ask KEY BODY: one POST; prints the status, and `replayed` if the answer says so.
ask() {
  curl -s -o /dev/null -D - --max-time 10 -X POST -H 'Content-Type: application/json' \
    -H "Idempotency-Key: $1" --data "$2" "$url$path" | tr -d '\r' |
    awk 'NR == 1 { status = $2 } tolower($0) == "idempotent-replayed: true" { replayed = " replayed" } END { print status replayed }'
}

# Whether the server does what it is measured for: a request is executed, and
# where keys count a retry gets the answer again and other parameters are refused.
does_its_work() {
  local got first second changed
  executions || return 1
  local before=$executed
  first=$(ask "$1-probe" '{"n":1}') second=$(ask "$1-probe" '{"n":1}') changed=$(ask "$1-probe" '{"n":2}')
  executions || return 1
  got="$first, $second, $changed; executed $((executed - before))"
  case $2:$load in
    lua*:* | onceward-*:fresh | onceward-*:same | onceward-*:cycle) expected="201, 201 replayed, 422; executed 1" ;;
    nginx:same) expected="201, 201 replayed, 201 replayed; executed 1" ;;
    *) expected="201, 201, 201; executed 3" ;;
  esac
  [ "$got" = "$expected" ] || { why="a request, its retry and a changed one got $got instead of $expected"; return 1; }
}

# start_wrk SECONDS CONNECTIONS LOAD...: the load.
start_wrk() {
  local for_seconds=$1 connections=$2
  shift 2
  taskset -c "$load_core" wrk -t 1 -c "$connections" -d "${for_seconds}s" --timeout 10s -s "$peers/load.lua" \
    "$url$path" -- "$@" >"$run/wrk.log" 2>&1 &
  # In the background, so that a signal is not held up by it.
  wrk_pid=$!
}

# Waits for the end of the load, and takes what load.lua tells of it.
finish_wrk() {
  wait "$wrk_pid" || { why="wrk failed: $(tail -n 2 "$run/wrk.log" | tr '\n' ' ')"; return 1; }
  wrk_pid=''
  read -r _ requests us p50 p99 statuses socket_errors made < <(grep '^RESULT' "$run/wrk.log") ||
    { why="wrk said nothing that could be read"; return 1; }
  [ "$statuses" = 0 ] || { why="$statuses of $requests answers were not 2xx"; return 1; }
  [ "$socket_errors" = 0 ] || { why="$socket_errors errors of sockets in $requests requests"; return 1; }
  [ "$requests" -gt 0 ] || { why="no request was answered"; return 1; }
}

wrk_run() {
  start_wrk "$@"
  finish_wrk
}

# Makes the records that are to be replayed in turn: the load itself does, until
# the destination has executed each.
make_records() {
  local before
  executions || return 1
  before=$executed
  start_wrk 120 "$@"
  while kill -0 "$wrk_pid" 2>/dev/null; do
    executions || return 1
    [ $((executed - before)) -lt "$RECORDS" ] || break
    sleep 0.2
  done
  kill -INT "$wrk_pid" 2>/dev/null || true
  finish_wrk || return 1
  [ $((executed - before)) -ge "$RECORDS" ] || { why="the records to be replayed could not be made in two minutes"; return 1; }
}

# What the load needs to find: records to be replayed, warm code and connections.
prepare() {
  local id=$1 connections=$2
  case $load in
    same)
      arguments=(same "$id-same")
      [ "$(ask "$id-same" "$(same_body "$id-same")")" = 201 ] ||
        { why="the record to be replayed could not be made"; return 1; }
      ;;
    cycle)
      arguments=(cycle "$id" "$RECORDS")
      make_records "$connections" "${arguments[@]}" || return 1
      ;;
    fresh) arguments=(fresh "$id-warm") ;;
    plain) arguments=(plain) ;;
  esac
  wrk_run $WARM_UP_SECONDS "$connections" "${arguments[@]}" || return 1
  [ "$load" != fresh ] || arguments=(fresh "$id")
}

# The body that load.lua sends with one key.
same_body() {
  local head='{"amount":4200,"currency":"eur","customer":"cus_1","ref":"'"$1" pad
  printf -v pad '%*s' $((200 - ${#head} - 2)) ''
  printf '%s%s"}' "$head" "${pad// /x}"
}

# measure ROUND NAME SERVER CONNECTIONS EXPECTED: one line, or the reason in `why`.
measure() {
  local round=$1 name=$2 server=$3 connections=$4 expected_executions=$5
  local id=$round-$name cpu cpu_then redis_cpu=0 core hits='' hits_then before_executed least most counts=(0 0) counts_then=(0 0)
  why='' asked=0
  start_server "$server" || return 1
  does_its_work "$id" "$server" || return 1
  prepare "$id" "$connections" || return 1
  settled_executions || return 1
  before_executed=$executed
  [ -z "$redis_pid" ] || read -ra counts < <(redis_counts) || { why="Redis does not tell its commands"; return 1; }
  case $server:$load in onceward-*:same | onceward-*:cycle) hits=$(cache_hits) || { why="the proxy does not tell its metrics"; return 1; } ;; esac

  [ -z "$redis_pid" ] || redis_cpu=$(ticks_of "$redis_pid")
  core=$(core_ticks)
  cpu=$(ticks_of ${server_pids[@]+"${server_pids[@]}"}) || { why="the server is gone before the load"; return 1; }
  wrk_run "$seconds" "$connections" "${arguments[@]}" || return 1
  core=$(($(core_ticks) - core))
  cpu_then=$(ticks_of ${server_pids[@]+"${server_pids[@]}"}) || { why="the server is gone after the load"; return 1; }
  cpu=$((cpu_then - cpu))
  [ -z "$redis_pid" ] || redis_cpu=$(($(ticks_of "$redis_pid") - redis_cpu))
  rss=$(resident_bytes ${server_pids[@]+"${server_pids[@]}"})

  [ -z "$redis_pid" ] || read -ra counts_then < <(redis_counts) || { why="Redis does not tell its commands"; return 1; }
  settled_executions || return 1
  executed=$((executed - before_executed))
  # Those that were on their way when the load ended may have been executed.
  least=$requests most=$((requests + connections))
  [ "$load" != fresh ] || most=$((made < most ? made : most))
  [ "$expected_executions" = all ] || least=0 most=0
  if [ "$executed" -lt "$least" ] || [ "$executed" -gt "$most" ]; then
    why="$requests requests were answered, and the destination executed $executed instead of $least to $most"
    return 1
  fi
  if [ -n "$hits" ]; then
    hits_then=$(cache_hits) || { why="the proxy does not tell its metrics"; return 1; }
    hits=$((hits_then - hits))
    if [ "$load" = cycle ] && [ $((hits * 100)) -gt "$requests" ]; then
      why="$hits of $requests replays came from the local cache that was to be passed"
      return 1
    elif [ "$load" = same ] && [ $((hits * 100)) -lt $((requests * 99)) ]; then
      why="only $hits of $requests replays came from the local cache"
      return 1
    fi
  fi
  write_line "$round" "$name"
}

# A measured line as JSON; what a row does not have is null.
write_line() {
  local cpu_us=null rss_bytes=null other=null redis_cpu_us=null redis_scripts=null redis_commands=null
  if [ ${#server_pids[@]} -gt 0 ]; then
    cpu_us=$((cpu * ticks_us)) rss_bytes=$rss
    other=$(awk -v t=$(((core - cpu) * ticks_us)) -v d="$us" 'BEGIN { printf "%.3f", t < 0 ? 0 : t / d }')
  fi
  if [ -n "$redis_pid" ]; then
    redis_cpu_us=$((redis_cpu * ticks_us))
    redis_commands=$((counts_then[0] - counts[0])) redis_scripts=$((counts_then[1] - counts[1]))
  fi
  printf '{"round":%d,"row":"%s","requests":%d,"seconds":%d.%06d,"p50":%d,"p99":%d,"cpu_us":%s,"rss":%s,"other":%s,' \
    "$1" "$2" "$requests" $((us / 1000000)) $((us % 1000000)) "$p50" "$p99" "$cpu_us" "$rss_bytes" "$other" >>"$lines"
  printf '"executions":%d,"redis_cpu_us":%s,"redis_commands":%s,"redis_scripts":%s}\n' \
    "$executed" "$redis_cpu_us" "$redis_commands" "$redis_scripts" >>"$lines"
  printf '%7d req/s  p50 %6d us  p99 %6d us' $((requests * 1000000 / us)) "$p50" "$p99" >&2
  [ $cpu_us = null ] || printf '  CPU %4d us' $((cpu_us / requests)) >&2
  [ $redis_cpu_us = null ] || printf ' + %d us' $((redis_cpu_us / requests)) >&2
  printf '\n' >&2
}

# What one command to Redis and one fdatasync take, alone: the yardsticks of what
# a request waits for. A disk may be ten times slower a minute later, so each is
# taken right before the row that is held against it.
measure_yardstick() {
  local round=$1 row=$2 found
  case $row in
    one-redis)
      clear_run
      start_redis || { not_valid "$round" "redis-command $row"; return 0; }
      found=$(taskset -c "$server_core" redis-benchmark -p "$redis_port" -c 1 -n 5000 -d 200 -t set --csv |
        awk -F '"?,"?' '/^"SET"/ { printf "redis-command %d %d", $5 * 1000, $7 * 1000 }')
      stop_all
      ;;
    first-group | one-group) found="fdatasync $(taskset -c "$server_core" python3 "$peers/fdatasync.py" "$folder")" ;;
    *) return 0 ;;
  esac
  local name p50 p99
  read -r name p50 p99 <<<"$found"
  printf '{"round":%d,"row":"%s","p50":%d,"p99":%d}\n' "$round" "$name $row" "$p50" "$p99" >>"$lines"
}

not_valid() {
  failed=yes
  printf 'NOT VALID: %s\n' "$why" >&2
  python3 -c 'import json, sys; print(json.dumps({"round": int(sys.argv[1]), "row": sys.argv[2], "not_valid": sys.argv[3]}))' \
    "$1" "$2" "$why" >>"$lines"
}

# -------------------------------------------------------------------- run

lines=$folder/lines failed=no
: >"$lines"
python3 "$peers/facts.py" "$rounds" "$seconds" "$CONNECTIONS" "$version" "$server_core" "$load_core" "$disk" \
  "$(printf '%s\n' "${runnable[@]%% *}")" "$(printf '%s\n' ${skipped[@]+"${skipped[@]}"})" >"$folder/facts"

say "$version; $rounds rounds, each row ${seconds}s after ${WARM_UP_SECONDS}s of warming up; server on core $server_core, the rest on core $load_core"
for round in $(seq "$rounds"); do
  # Every other round goes backwards: whatever follows from the order, or drifts,
  # is against each of two rows in turn.
  for place in $(seq 0 $((${#runnable[@]} - 1))); do
    [ $((round % 2)) = 1 ] || place=$((${#runnable[@]} - 1 - place))
    read -r name server load connections expected_executions <<<"${runnable[$place]}"
    path=/orders
    # What is only passed on goes where nobody guards or caches.
    case $server:$load in *:plain | nginx:fresh) path=/others ;; esac
    measure_yardstick "$round" "$name"
    printf 'round %d/%d  %-16s  ' "$round" "$rounds" "$name" >&2
    measure "$round" "$name" "$server" "$connections" "$expected_executions" || not_valid "$round" "$name"
    stop_all
  done
done

report=("$lines" "$folder/facts")
[ -z "$json" ] || report+=("$json")
python3 "$peers/report.py" "${report[@]}"
[ $failed = no ]
