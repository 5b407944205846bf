#!/bin/bash
# Made by `tilery submit --workers`.
# {{TEMPLATE}} Words in double braces are filled in; a line with a word that has no value is left out, as this one.
#SBATCH --job-name={{NAME}}
#SBATCH --output={{LOG}}
#SBATCH --open-mode=append
#SBATCH --chdir={{FOLDER}}
#SBATCH --array=0-{{LAST_TASK}}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={{CPUS}}
#SBATCH --mem={{MEMORY}}
#SBATCH --gpus-per-node={{GPUS}}
#SBATCH --time={{MINUTES}}
#SBATCH --account={{ACCOUNT}}
#SBATCH --partition={{PARTITION}}
# USR1 comes GRACE seconds before the time limit.
#SBATCH --requeue
#SBATCH --signal=B:USR1@{{GRACE}}

{{ENVIRONMENT}}

run= host= asked=
ask() {
  asked=$1
  for process in $run $host; do kill -USR1 "$process" 2>/dev/null; done
}
trap 'ask USR1' USR1  # the time limit is near: this task is queued again and goes on
trap 'ask TERM' TERM  # it is cancelled or preempted: what Slurm does with it afterwards is Slurm's to say

# Until a process has ended; a signal to this script does not end the waiting.
await() {
  while kill -0 "$1" 2>/dev/null; do
    sleep 1 &
    wait $!
  done
  wait "$1"
}
again() {
  echo "queued again, to go on where it stopped"
  scontrol requeue "$SLURM_JOB_ID" && exit 75
}
# Whether the run has ended since this array was submitted.
over() {
  [ {{WORK}}/status.json -nt {{SCRIPT}} ] &&
    {{STATUS}} --json 2>/dev/null | grep -Eq '"state":"(done|failed)"'
}

# The first task gives out the work; every task does some of it.
if [ "$SLURM_ARRAY_TASK_ID" = 0 ]; then
  {{RUN}} &
  run=$!
  {{WORKER}} &
  host=$!
  await "$run"
  code=$?
  kill "$host" 2>/dev/null
  await "$host"
  [ "$code" != 75 ] || [ "$asked" != USR1 ] || again
  if [ "$code" != 0 ] && [ "$code" != 3 ] && [ "$code" != 75 ] && [ {{LAST_TASK}} != 0 ]; then
    scancel "${SLURM_ARRAY_JOB_ID}_[1-{{LAST_TASK}}]"  # they would wait for a run that cannot be
  fi
  [ "$code" != {{ACCEPTED}} ] || code=0  # finished, with failed items: no reason to keep later stages from running
  exit "$code"
fi

# The first task may begin later than this one, and may be queued again.
code=0 waited=0
until [ -n "$asked" ] || over; do
  {{WORKER}} &
  host=$!
  await "$host"
  code=$?
  [ "$code" = 0 ] || waited=$((waited + 1))
  [ "$waited" -lt 30 ] || exit "$code"  # each waits for two minutes
  sleep 2 &
  wait $!
done
[ "$asked" != USR1 ] || over || again
exit 0
