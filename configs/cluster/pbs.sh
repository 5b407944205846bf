#!/bin/bash
# Made by `tilery submit`.
# {{TEMPLATE}} Words in double braces are filled in; a line with a word that has no value is left out, as this one.
#PBS -N {{NAME}}
#PBS -o {{LOG}}
#PBS -j oe
#PBS -l select={{NODES}}{{RESOURCES}}
#PBS -l place=scatter:excl{{EXCLUSIVE}}
#PBS -l walltime={{CLOCK}}
#PBS -A {{ACCOUNT}}
#PBS -q {{PARTITION}}
#PBS -r y

cd {{SHELL_FOLDER}} || exit 2
{{ENVIRONMENT}}

run= asked=
ask() { asked=$1; [ -z "$run" ] || kill -USR1 "$run" 2>/dev/null; }
trap 'ask USR1' USR1  # the time limit is near: the run is to end with 75, and goes on when the job is queued again
trap 'ask TERM' TERM  # the job is deleted or preempted
# PBS gives no early notice of its limit.
(sleep {{SECONDS_TO_NOTICE}} && kill -USR1 $$ 2>/dev/null) &
notice=$!

# Starts a program on every node: by what PBS brings for it, else by ssh.
on_all_nodes() {
  if command -v pbsdsh >/dev/null; then
    exec pbsdsh -- "$@"
  fi
  local node words nodes=()
  words="cd $(printf '%q' "$PWD") && exec$(printf ' %q' "$@")"
  while read -r node; do
    ssh -o BatchMode=yes "$node" "$words" </dev/null &
    nodes+=($!)
  done < <(sort -u "$PBS_NODEFILE")
  trap 'kill "${nodes[@]}" 2>/dev/null' TERM
  wait "${nodes[@]}"
}

# The scheduler, on the first node. Workers come from all of them, and find it by the work folder.
{{RUN}} &
run=$!
on_all_nodes {{WORKER}} &
hosts=$!

alone=0
while kill -0 "$run" 2>/dev/null; do
  kill -0 "$hosts" 2>/dev/null || alone=$((alone + 1))
  if [ "$alone" = 30 ]; then
    echo "no host is left that takes part; the run is asked to end" >&2
    kill -USR1 "$run" 2>/dev/null
  fi
  sleep 1 &
  wait $!
done
wait "$run"
code=$?

for _ in 1 2 3 4 5 6 7 8 9 10; do
  kill -0 "$hosts" 2>/dev/null || break
  sleep 1 &
  wait $!
done
kill "$hosts" 2>/dev/null
[ -z "${notice:-}" ] || kill "$notice" 2>/dev/null

if [ "$code" = 75 ] && [ "$asked" = USR1 ]; then
  echo "queued again, to go on where it stopped"
  qrerun "$PBS_JOBID" && exit 75
fi
[ "$code" != {{ACCEPTED}} ] || code=0  # finished, with failed items: no reason to keep later stages from running
exit "$code"
