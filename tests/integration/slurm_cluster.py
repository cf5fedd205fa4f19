"""A real Slurm on this machine: munged, slurmctld and two slurmd, from whatever Debian or its like has installed.

Nodes ``n1`` (feature ``fast``) and ``n2`` (``slow``) are loopback with a port each; their names are known inside the
daemons' own mount namespaces, so nothing of this machine is changed, and all are ended by the numbers of their
processes. Installs nothing.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = (
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "srun",
    "squeue",
    "scancel",
    "scontrol",
    "sinfo",
    "unshare",
)
NODES = ("n1", "n2")
_PATIENCE = 60.0
"""Seconds until daemons that do not answer are taken never to."""
_CONFIGURATION = """
ClusterName=stash-tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
KillWait=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs={cores} Features=fast State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs={cores} Features=slow State=UNKNOWN
PartitionName=two Nodes=n[1-2] MaxTime=60 PriorityTier=1 Default=YES State=UP
PartitionName=urgent Nodes=n[1-2] MaxTime=60 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=short Nodes=n[1-2] MaxTime=1 State=UP
"""


def obstacle():
    """Why there can be no such cluster here; empty if there can."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    return (
        f"Slurm is not installed: there is no {missing[0]} (apt install slurm-wlm munge)"
        if missing
        else ""
    )


@dataclass(frozen=True)
class SlurmCluster:
    """A cluster that is up; partitions ``two``, ``urgent`` (which preempts it) and ``short`` (a minute at most)."""

    folder: Path

    @property
    def environment(self):
        """What programs need to find it, and ranks to find each other."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "GLOO_SOCKET_IFNAME": "lo"}

    def attempt(self, *words):
        """A program of Slurm, run to its end."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )

    def call(self, *words):
        """What a program of Slurm says; fails the test if it cannot do it."""
        done = self.attempt(*words)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def jobs(self):
        """``NAME STATE REASON`` of everything in the queue."""
        return self.call("squeue", "--noheader", "--format=%j %T %r").splitlines()

    def until(self, what, seconds=_PATIENCE):
        """Wait until a line of the queue holds ``what``."""
        deadline = time.monotonic() + seconds
        while not any(what in line for line in self.jobs()):
            assert time.monotonic() < deadline, f"no {what!r} in {self.jobs()}"
            time.sleep(0.2)


@contextmanager
def slurm_cluster(folder):
    """Start it in ``folder``, which root alone may write to; ended with all of its jobs."""
    _write(folder)
    cluster, daemons = SlurmCluster(folder), list[subprocess.Popen[bytes]]()
    try:
        files = ("socket", "key-file", "pid-file", "log-file", "seed-file")
        munge = [f"--{name}={folder}/munge.{name.removesuffix('-file')}" for name in files]
        daemons.append(_start(folder, "munged", "--foreground", "--force", *munge))
        _wait_for((folder / "munge.socket").exists, "munged", folder)
        daemons.append(_start(folder, "slurmctld", "-D", "-c"))
        for node in NODES:
            named = f"mount --bind {folder}/hosts /etc/hosts && exec slurmd -D -N {node}"
            daemons.append(_start(folder, "unshare", "--mount", "sh", "-c", named))
        _wait_for(lambda: _idle(cluster), "slurmctld", folder)
        yield cluster
    finally:
        if len(daemons) > 1:
            cluster.attempt("scancel", "--user=root")
            _wait_for(lambda: _idle(cluster), "slurmctld", folder, fails=False)
        for daemon in reversed(daemons):
            _end(daemon)


def _write(folder):
    host, cores = socket.gethostname(), len(os.sched_getaffinity(0))
    controller, first, second = _free_ports(3)
    (folder / "state").mkdir(parents=True)
    folder.chmod(0o755)  # munged wants to be sure that no other user can replace its files
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    (folder / "hosts").write_text(f"127.0.0.1 localhost {host} {' '.join(NODES)}\n")
    text = _CONFIGURATION.format(
        host=host, folder=folder, cores=cores, controller=controller, first=first, second=second
    )
    (folder / "slurm.conf").write_text(text)


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _start(folder, *words):
    with (folder / "daemons.log").open("ab") as log:
        environment = {**os.environ, **SlurmCluster(folder).environment}
        return subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def _idle(cluster):
    found = cluster.attempt("sinfo", "--noheader", "--Node", "--partition=two", "--format=%N %T")
    return found.stdout.split() == [word for node in NODES for word in (node, "idle")]


def _wait_for(condition, name, folder, fails=True):
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            assert not fails, (
                f"{name} does not answer: {(folder / 'daemons.log').read_text()[-2000:]}"
            )
            return
        time.sleep(0.2)


def _end(daemon):
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(15)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
