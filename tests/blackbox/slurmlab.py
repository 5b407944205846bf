"""A real Slurm on one machine, for tests: slurmctld on the first of several hosts (netlab.py), a node on each, all of it in
one folder and without munge. Needs root and Debian's slurm-wlm. Source: slurm.conf(5), slurmd(8).
"""
from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import time

import netlab

PORT = 17817


def missing() -> str:
    """Why there can be no such cluster here; "" if there can."""
    if not all(shutil.which(name) for name in ("slurmctld", "slurmd", "sbatch")):
        return "needs Debian's slurm-wlm"
    return netlab.missing()


class Slurm:
    def __init__(self, folder: pathlib.Path, count: int):
        self.hosts = netlab.Hosts(folder / "net", count)
        self.folder, self.conf = folder, folder / "slurm.conf"
        self.nodes = [f"node{k}" for k in range(count)]
        try:
            self._up()
        except BaseException:
            self.down()
            raise

    def _up(self):
        for name in ("state", *(f"spool/{node}" for node in self.nodes)):
            (self.folder / name).mkdir(parents=True)
        lines = {
            "ClusterName": "tilery", "SlurmctldHost": f"host0({netlab.NETWORK}.1)", "SlurmUser": "root",
            "SlurmdUser": "root", "AuthType": "auth/none", "CredType": "cred/none",
            "AuthInfo": "cred_expire=5",  # a job that is queued again waits as long as this; below 5 it would be 120
            "SlurmctldPort": PORT, "SlurmctldPidFile": f"{self.folder}/slurmctld.pid",
            "SlurmdPidFile": f"{self.folder}/%n.pid", "SlurmctldLogFile": f"{self.folder}/slurmctld.log",
            "SlurmdLogFile": f"{self.folder}/%n.log", "SlurmdSpoolDir": f"{self.folder}/spool/%n",
            "StateSaveLocation": f"{self.folder}/state", "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none", "JobAcctGatherType": "jobacct_gather/none", "SwitchType": "switch/none",
            "MpiDefault": "none", "SelectType": "select/cons_tres", "SelectTypeParameters": "CR_CPU",
            "SchedulerParameters": "sched_interval=2,bf_interval=2,batch_sched_delay=0", "PriorityType": "priority/basic",
            "ReturnToService": 2, "MailProg": "/bin/true", "SlurmdParameters": "config_overrides", "SlurmdTimeout": 8,
            "SlurmctldTimeout": 5, "MessageTimeout": 10, "InactiveLimit": 0, "MinJobAge": 600, "KillWait": 3,
            "KillOnBadExit": 0, "JobRequeue": 1, "AccountingStorageType": "accounting_storage/none",
        }
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        for k, node in enumerate(self.nodes):
            text += (f"NodeName={node} NodeHostname=host{k} NodeAddr={netlab.NETWORK}.{k + 1} Port={PORT + 1} CPUs=4 "
                     "RealMemory=4000 State=UNKNOWN\n")
        self.conf.write_text(text + "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO\n")
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.folder / "plugstack.conf").write_text("")
        self.env = {**os.environ, "SLURM_CONF": str(self.conf)}
        self("slurmctld", "-f", str(self.conf))
        for node in self.nodes:
            self.start(node)
        end = time.monotonic() + 30
        while self("sinfo", "-h", "-N", "-o", "%t", check=False).stdout.split() != ["idle"] * len(self.nodes):
            assert time.monotonic() < end, (self.folder / "slurmctld.log").read_text()[-3000:]
            time.sleep(0.1)

    def __call__(self, *words, host: str = "host0", check: bool = True, **options) -> subprocess.CompletedProcess:
        """Runs a command on a host, as a user who is logged in there."""
        r = subprocess.run([*self.hosts.entry(host), *map(str, words)], env=self.env, capture_output=True, text=True,
                           timeout=60, **options)
        assert not check or r.returncode == 0, f"{words}: exit {r.returncode}\n{r.stdout[-1000:]}{r.stderr[-3000:]}"
        return r

    def start(self, node: str):
        self("slurmd", "-N", node, "-f", str(self.conf), host=f"host{self.nodes.index(node)}")

    def power_off(self, node: str):
        self.hosts.kill(f"host{self.nodes.index(node)}")

    def state(self, job) -> str:
        """PENDING, RUNNING, COMPLETED, ... of an array all its tasks' states, sorted, each once."""
        shown = self("scontrol", "-o", "show", "job", job, check=False).stdout
        return " ".join(sorted({word[9:] for word in shown.split() if word.startswith("JobState=")}))

    def wait(self, job, state: str, seconds: float = 120) -> str:
        """Until all of a job is in that state; what Slurm shows of it then."""
        end = time.monotonic() + seconds
        while self.state(job) != state:
            assert time.monotonic() < end, self("scontrol", "show", "job", job, check=False).stdout
            time.sleep(0.2)
        return self("scontrol", "-o", "show", "job", job).stdout

    def down(self):
        self.hosts.down()
