"""One master: creates its parts, and starts and stops them in order."""

from __future__ import annotations

import contextlib
import threading
import uuid

from shardmerge.master.commands.task import compare
from shardmerge.master.commands.task.compare import CompareService
from shardmerge.master.leader.counts import LeaderCounts
from shardmerge.master.leader.ddl_lock_loop import DdlLockLoop
from shardmerge.master.leader.election import Election
from shardmerge.master.leader.loop import LeaderLoop
from shardmerge.master.leader.scheduler import Scheduler
from shardmerge.master.metrics.probes import MasterProbes
from shardmerge.master.secret_key_check import KeyCheck
from shardmerge.master.service import SERVICE, handlers
from shardmerge.master.settings import MasterSettings
from shardmerge.master.store import Store
from shardmerge.master.stored_secrets import Sealing
from shardmerge.master.task_history.command_log import CommandLog
from shardmerge.master.task_history.keeper import HistoryKeeper
from shardmerge.master.watch import MasterWatch
from shardmerge.master.workers.client import Workers
from shardmerge.proto import errors, secret
from shardmerge.proto.compare_pb2_grpc import add_CompareServicer_to_server
from shardmerge.proto.diagnostics.self_report import SelfReport
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd
from shardmerge.proto.files.local_socket import LocalSocket
from shardmerge.proto.http.loops import LoopAges
from shardmerge.proto.http.server import HttpEndpoint, started_endpoint
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import repeat
from shardmerge.proto.rpc.admission import RunningCalls
from shardmerge.proto.rpc.call_counts import CallCounts
from shardmerge.proto.rpc.caller_proof import CallerCheck
from shardmerge.proto.rpc.limits import MASTER
from shardmerge.proto.rpc.server import Serving, add_service, listen, listen_locally, make_server
from shardmerge.proto.task_history.recorder import Recorder
from shardmerge.proto.tls.process import of_process

_PATIENCE_SECONDS = 2.0
_READINESS_SECONDS = 0.2
_HISTORY_SECONDS = 2.0
_OF_KEY = (
    errors.master.SECRET_KEY_ABSENT,
    errors.master.SECRET_KEY_DIFFERS,
    errors.config.SECRET_KEY_UNUSABLE,
)


class Master:
    """A master holds no state of its own that a restart would lose: all of it is in etcd. Start and stop it once."""

    def __init__(self, settings: MasterSettings) -> None:
        self._settings = settings
        self._ending = threading.Event()
        self._etcd = Etcd(settings.etcd, tls=settings.etcd_tls)
        self._workers = Workers()
        self._key = KeyCheck(self._etcd, settings.key_file)
        self._socket: LocalSocket | None = None
        counts, loops = LeaderCounts(), LoopAges()
        self._election = Election(
            self._etcd,
            settings.name,
            settings.advertise,
            settings.member_ttl,
            settings.shown,
            self._key.confirm,
            loops,
            counts,
        )
        self._store = Store(self._etcd, self._election)
        self._history = Recorder(self._etcd, f"master {settings.name}", uuid.uuid4().hex)
        self._scheduler = Scheduler(
            self._etcd, self._store, self._election, self._workers, counts, loops, self._history
        )
        self._locks = DdlLockLoop(
            self._etcd, self._store, self._election, settings.lock_alert, counts, loops, self._history
        )
        self._keeper = HistoryKeeper(
            self._etcd,
            self._store,
            self._election,
            self._workers,
            settings.history_days,
            settings.history_sample_seconds,
        )
        self._sealing = LeaderLoop(
            "passwords in etcd", self._etcd, self._election, Sealing(self._store, self._election).reconcile, loops=loops
        )
        counted, calls = CallCounts(), RunningCalls()
        self._watch = MasterWatch(self._election, self._store, self._workers, settings.etcd_tls)
        self._probes = MasterProbes(self._election, self._store, counts, loops, self._ending, counted, self._watch)
        self._http: HttpEndpoint | None = None
        self._self_report = SelfReport(settings.name, self._probes.probes(), calls)
        self._serving = Serving()
        self._commands = CommandLog(self._history, self._store)
        self._server = make_server(
            (SERVICE.full_name, compare.SERVICE),
            f"dm-master {settings.name}",
            MASTER,
            reflect=settings.reflection,
            serving=self._serving,
            calls=calls,
            counts=counted,
            callers=None if settings.key_file is None else CallerCheck(secret.call_keys, f"dm-master {settings.name}"),
        )
        add_service(
            self._server,
            SERVICE,
            handlers(
                settings,
                self._etcd,
                self._store,
                self._election,
                self._workers,
                self._watch,
                self._self_report,
                self._commands,
                self._ending,
            ),
        )
        add_CompareServicer_to_server(CompareService(self._store, self._ending), self._server)

    def start(self) -> Master:
        """Listen, then join. If etcd is unreachable, the master joins when it is back.

        Raises ``errors.master.CANNOT_LISTEN``, ``SOCKET_UNUSABLE``, and the errors of the key check.
        """
        with contextlib.ExitStack() as undo:
            undo.callback(self._etcd.close)
            self._check_key()
            # Probes and metrics answer as soon as the gRPC port does.
            self._http = started_endpoint(
                self._settings.http,
                self._probes.probes(),
                is_default=self._settings.http_is_default,
                tokens=None if self._settings.insecure else secret.metrics_tokens,
            )
            if self._http is not None:
                undo.callback(self._http.stop)
            listen(self._server, self._settings.listen)
            self._listen_locally()
            undo.pop_all()
        self._server.start()
        self._election.start()
        self._scheduler.start()
        self._locks.start()
        self._sealing.start()
        self._self_report.start(self._ending)
        self._history.start()
        self._keeper.start()
        self._watch.start()
        threading.Thread(target=self._follow_readiness, name="readiness", daemon=True).start()
        get_logger().info(
            "listening",
            master=self._settings.name,
            address=self._settings.listen,
            advertised=self._settings.advertise,
            socket=self._socket.path if self._socket is not None else None,
        )
        tls = of_process()
        if tls is not None:
            from shardmerge.proto.tls.diagnose import log_diagnosis

            log_diagnosis(self._settings.advertise, tls.files)  # logs why others cannot connect, before they try
        return self

    def _check_key(self) -> None:
        """Check the key at the start if etcd answers; if not, the election checks it before this master joins."""
        if self._settings.key_file is None:
            return
        with Etcd(self._settings.etcd, _PATIENCE_SECONDS, self._settings.etcd_tls) as etcd:
            try:
                KeyCheck(etcd, self._settings.key_file).confirm()
            except ShardmergeError as error:
                if error.spec in _OF_KEY:
                    raise
                get_logger().warning("the key is checked later", master=self._settings.name, error=str(error))

    def _follow_readiness(self) -> None:
        """Let the health service report what /readyz does."""
        repeat(
            lambda: self._serving.update(is_ready=self._probes.readiness("").is_ready), _READINESS_SECONDS, self._ending
        )
        self._serving.update(is_ready=False)

    def _listen_locally(self) -> None:
        if not self._settings.socket:
            return
        try:
            self._socket = LocalSocket(self._settings.socket)
            listen_locally(self._server, self._socket)
        except ShardmergeError as error:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            if not self._settings.socket_is_default:
                raise
            get_logger().warning("no Unix socket", error=str(error), workaround=error.workaround)

    def stop(self) -> None:
        """Finish the answers in progress (commands that wait report what they have seen), give up leadership, close."""
        self._ending.set()
        self._watch.stop()
        self._server.stop(self._settings.drain).wait()
        if self._socket is not None:
            self._socket.close()
        self._scheduler.end()
        self._locks.end()
        self._sealing.end()
        self._keeper.end()
        self._commands.end()
        self._history.end(_HISTORY_SECONDS)
        self._election.end()
        self._workers.close()
        if self._http is not None:
            self._http.stop()
        self._etcd.close()
        get_logger().info("ended", master=self._settings.name)

    @property
    def leads(self) -> bool:
        return self._election.leads
