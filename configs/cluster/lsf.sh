#!/bin/bash
# Made by `tilery submit`.
# {{TEMPLATE}} Words in double braces are filled in; a line with a word that has no value is left out, as this one.
#BSUB -J {{NAME}}
#BSUB -o {{LOG}}
#BSUB -cwd {{FOLDER}}
#BSUB -n {{NODES}}
#BSUB -R "span[ptile=1]"
#BSUB -x{{EXCLUSIVE}}
#BSUB -R "affinity[core({{CPUS}})]"
#BSUB -M {{MEMORY}}
#BSUB -gpu "num={{GPUS}}/host"
#BSUB -W {{MINUTES}}
#BSUB -P {{ACCOUNT}}
#BSUB -q {{PARTITION}}
# USR1 comes before the time limit; a job that ends with 75 is queued again.
#BSUB -wa USR1
#BSUB -wt {{GRACE_MINUTES}}
#BSUB -r
#BSUB -Q "75"

{{ENVIRONMENT}}

run=
ask() { [ -z "$run" ] || kill -USR1 "$run" 2>/dev/null; }
trap ask USR1 TERM

# The scheduler, on the first host. Workers come from all of them, and find it by the work folder.
{{RUN}} &
run=$!
blaunch -z "$(tr ' ' '\n' <<<"$LSB_HOSTS" | sort -u | tr '\n' ' ')" {{WORKER}} &
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
[ "$code" != {{ACCEPTED}} ] || code=0  # finished, with failed items: no reason to keep later stages from running
exit "$code"
