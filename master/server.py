"""One master: its parts, put together, started and ended in order."""

from __future__ import annotations

import contextlib
import threading

from master import compare
from master.binlog_ops import BinlogOps
from master.compare import CompareService
from master.configs import Configs
from master.ddl_lock_commands import DdlLockCommands
from master.ddl_locks import DdlLocks
from master.ddl_preview import DdlPreviews
from master.election import Election
from master.explain import Explanations
from master.key_check import KeyCheck
from master.leader_loop import LeaderLoop
from master.leadership import Leaders
from master.quarantine import Quarantines
from master.relays import Relays
from master.scheduler import Scheduler
from master.schemas import Schemas
from master.sealing import Sealing
from master.service import SERVICE, Service
from master.settings import Settings
from master.sources import Sources
from master.stages import Waiter
from master.status import Status
from master.store import Store
from master.tasks import Tasks
from master.transfer import Transfers
from master.update import Updates
from master.workers import Workers
from proto import errors
from proto.compare_pb2_grpc import add_CompareServicer_to_server
from proto.errors import ShardmergeError
from proto.etcd import Etcd
from proto.local_socket import LocalSocket
from proto.log import get_logger
from proto.master_pb2_grpc import add_MasterServicer_to_server
from proto.rpc import listen, listen_locally, make_server
from proto.rpc_limits import MASTER
from proto.tls.diagnose import tell
from proto.tls.process import of_process

_PATIENCE_SECONDS = 2.0
_OF_KEY = (
    errors.master.SECRET_KEY_ABSENT,
    errors.master.SECRET_KEY_DIFFERS,
    errors.config.SECRET_KEY_UNUSABLE,
)


class Master:
    """Holds nothing that a restart would miss: etcd has it all. Start and stop it once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ending = threading.Event()
        self._etcd = Etcd(settings.etcd, tls=settings.etcd_tls)
        self._workers = Workers()
        self._key = KeyCheck(self._etcd, settings.key_file)
        self._socket: LocalSocket | None = None
        self._election = Election(
            self._etcd, settings.name, settings.advertise, settings.member_ttl, settings.shown, self._key.confirm
        )
        self._store = Store(self._etcd, self._election)
        self._scheduler = Scheduler(self._etcd, self._store, self._election, self._workers)
        self._locks = DdlLocks(self._etcd, self._store, self._election, settings.lock_alert)
        self._sealing = LeaderLoop(
            "passwords in etcd", self._etcd, self._election, Sealing(self._store, self._election).reconcile
        )
        waiter = Waiter(self._store.read, self._workers, settings.rpc_timeout, self._ending)
        service = Service(
            self._store,
            Sources(self._store, self._workers, waiter, settings.rpc_timeout),
            Tasks(self._store, self._workers, waiter, settings.rpc_timeout),
            Updates(self._store, self._workers, waiter, settings.rpc_timeout),
            Status(self._store, self._workers),
            Relays(self._store, self._workers, waiter),
            DdlLockCommands(self._store),
            BinlogOps(self._store, self._workers),
            DdlPreviews(self._store, self._workers, settings.rpc_timeout),
            Schemas(self._store, self._workers, settings.rpc_timeout),
            Quarantines(self._store, self._workers),
            Explanations(self._store, self._workers, settings.rpc_timeout),
            Configs(self._store, f"unix:{settings.socket}" if settings.socket else ""),
            Transfers(self._store, self._workers, waiter, settings.rpc_timeout),
            Leaders(settings.name, self._store, self._election),
        )
        self._server = make_server(
            (SERVICE, compare.SERVICE), f"dm-master {settings.name}", MASTER, reflect=settings.reflection
        )
        add_MasterServicer_to_server(service, self._server)
        add_CompareServicer_to_server(CompareService(self._store, self._ending), self._server)

    def start(self) -> Master:
        """Listen, then join. etcd may be away: the master joins when it is back.

        Raises ``errors.master.CANNOT_LISTEN``, ``SOCKET_UNUSABLE``, and what is wrong with the key.
        """
        with contextlib.ExitStack() as undo:
            undo.callback(self._etcd.close)
            self._check_key()
            listen(self._server, self._settings.listen)
            self._listen_locally()
            undo.pop_all()
        self._server.start()
        self._election.start()
        self._scheduler.start()
        self._locks.start()
        self._sealing.start()
        get_logger().info(
            "listening",
            master=self._settings.name,
            address=self._settings.listen,
            advertised=self._settings.advertise,
            socket=self._socket.path if self._socket is not None else None,
        )
        tls = of_process()
        if tls is not None:
            tell(self._settings.advertise, tls.files)  # what keeps others from it is told before they come
        return self

    def _check_key(self) -> None:
        """Before anything else, if etcd answers; if not, before this master joins."""
        if self._settings.key_file is None:
            return
        with Etcd(self._settings.etcd, _PATIENCE_SECONDS, self._settings.etcd_tls) as etcd:
            try:
                KeyCheck(etcd, self._settings.key_file).confirm()
            except ShardmergeError as error:
                if error.spec in _OF_KEY:
                    raise
                get_logger().warning("the key is checked later", master=self._settings.name, error=str(error))

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
        """Finish answers under way (those that wait say what they know), give up leadership, close."""
        self._ending.set()
        self._server.stop(self._settings.drain).wait()
        if self._socket is not None:
            self._socket.close()
        self._scheduler.end()
        self._locks.end()
        self._sealing.end()
        self._election.end()
        self._workers.close()
        self._etcd.close()
        get_logger().info("ended", master=self._settings.name)

    @property
    def leads(self) -> bool:
        return self._election.leads
