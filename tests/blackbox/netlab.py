"""Several hosts on one machine, for tests: each has a network namespace with an address of its own, a name of its own and
its own /etc/hosts, and all see the same files. A bridge joins them, in a namespace of its own, so that nothing leaves this
machine. Needs root and iproute2. Source: ip-netns(8), unshare(1).

The first host is the one that `mpirun` is started on; it reaches the others by agent(), which takes the place of ssh.
"""
from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess

NETWORK = "10.78.0"


def missing() -> str:
    """Why there can be no such hosts here; "" if there can."""
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    if not shutil.which("ip"):
        return "needs iproute2"
    probe = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, text=True)
    return "" if probe.returncode == 0 else f"no namespaces here: {probe.stderr.strip()[:200]}"


class Hosts:
    def __init__(self, folder: pathlib.Path, count: int):
        self.folder, self.names = folder, [f"host{k}" for k in range(count)]
        self.prefix = f"tilery{os.getpid()}"
        self.hub = f"{self.prefix}-hub"
        folder.mkdir(parents=True)
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
            f"{NETWORK}.{k + 1} {name}\n" for k, name in enumerate(self.names)))
        (folder / "hostfile").write_text("".join(f"{name} slots=2\n" for name in self.names))
        agent = folder / "agent.sh"
        # As ssh: options, a host, and words that make one line for a shell there.
        agent.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1; shift\n'
                         f'exec {" ".join(self.entry("$host"))} sh -c "$*"\n')
        agent.chmod(0o755)
        try:
            self._up()
        except BaseException:
            self.down()
            raise

    def _ip(self, *words):
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    def _up(self):
        self._ip("netns", "add", self.hub)
        self._ip("-n", self.hub, "link", "add", "br0", "type", "bridge")
        self._ip("-n", self.hub, "link", "set", "br0", "up")
        for k, name in enumerate(self.names):
            space = f"{self.prefix}-{name}"
            self._ip("netns", "add", space)
            self._ip("-n", space, "link", "set", "lo", "up")
            self._ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", f"p{k}", "netns", self.hub)
            self._ip("-n", self.hub, "link", "set", f"p{k}", "master", "br0", "up")
            self._ip("-n", space, "addr", "add", f"{NETWORK}.{k + 1}/24", "dev", "eth0")
            self._ip("-n", space, "link", "set", "eth0", "up")

    def entry(self, name: str) -> list[str]:
        """The words that run what follows them on this host."""
        inside = f"mount --bind {self.folder}/hosts /etc/hosts; hostname $0; exec \"$@\""
        inside = inside.replace("$0", '"$0"')
        quoted = "'" + inside + "'"
        words = ["ip", "netns", "exec", f"{self.prefix}-{name}", "unshare", "--uts", "--mount", "sh", "-c"]
        return words + [quoted if name.startswith("$") else inside, name]

    def mpirun(self, ranks: int) -> list[str]:
        return [*self.entry(self.names[0]), "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                "--hostfile", f"{self.folder}/hostfile", "--mca", "plm_rsh_agent", f"{self.folder}/agent.sh",
                "--map-by", "node", "-np", str(ranks)]

    def cut(self, name: str):
        """The network is gone, without a word to either side."""
        self._ip("-n", self.hub, "link", "set", f"p{self.names.index(name)}", "down")

    def heal(self, name: str):
        self._ip("-n", self.hub, "link", "set", f"p{self.names.index(name)}", "up")

    def processes(self, name: str) -> list[int]:
        r = subprocess.run(["ip", "netns", "pids", f"{self.prefix}-{name}"], capture_output=True, text=True)
        return [int(pid) for pid in r.stdout.split()]

    def kill(self, name: str):
        """Power off."""
        for pid in self.processes(name):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def down(self):
        for name in self.names:
            self.kill(name)
            subprocess.run(["ip", "netns", "del", f"{self.prefix}-{name}"], capture_output=True)
        subprocess.run(["ip", "netns", "del", self.hub], capture_output=True)
