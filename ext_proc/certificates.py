"""What the ext_proc port shows of itself over TLS, and whom it asks to do the same; new files need no restart."""

import asyncio
import logging
import ssl

import grpc

from ext_proc.config import Tls
from ext_proc.errors import ConfigError
from ext_proc.sources.watched import WatchedFile

log = logging.getLogger(__name__)

EVERY_S = 1.0


class Certificates:
    """Connections there are keep what they agreed on; a new one gets what the files held a moment ago."""

    def __init__(self, tls: Tls) -> None:
        """Raises ConfigError naming the file that cannot be read or does not fit."""
        self._tls = tls
        self._watched = [WatchedFile(path) for path in (tls.certificate, tls.key, tls.client_ca) if path is not None]
        self._now = self._given = read(tls)
        self.refused = 0
        """New files that did not fit together; the old ones stay in use."""

    def credentials(self) -> grpc.ServerCredentials:
        """For `add_secure_port`."""
        return grpc.dynamic_ssl_server_credentials(
            self._now,
            self._newer,  # type: ignore[arg-type]  # the stubs forget that None is an answer, too
            require_client_authentication=self._tls.client_ca is not None,
        )

    async def watch(self) -> None:
        """Look for new files for ever."""
        while True:
            await asyncio.sleep(EVERY_S)
            changed = [watched.changed() for watched in self._watched]  # all are asked: any() would stop at the first
            if True in changed:
                try:
                    self._now = await asyncio.to_thread(read, self._tls)
                    log.info("server.tls: new connections get the certificate now in %s", self._tls.certificate)
                except ConfigError as exc:
                    self.refused += 1
                    log.warning("%s; going on with what there was", exc)

    def _newer(self) -> grpc.ServerCertificateConfiguration | None:
        """gRPC asks at every new connection, in a thread of its own; None: as before."""
        if self._given is self._now:
            return None
        self._given = self._now
        return self._given


def read(tls: Tls) -> grpc.ServerCertificateConfiguration:
    """Raises ConfigError. OpenSSL judges the files first: gRPC would say no more than that a handshake failed."""
    try:
        certificate, key = tls.certificate.read_bytes(), tls.key.read_bytes()
        client_ca = None if tls.client_ca is None else tls.client_ca.read_bytes()
    except OSError as exc:
        raise ConfigError(f"server.tls: cannot read {exc.filename}: {exc.strerror}") from exc
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Somebody asked for a pass phrase at a terminal would wait there for ever.
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: b"-")
    except (ssl.SSLError, OSError) as exc:
        raise ConfigError(f"server.tls: {_why(exc, tls)}") from exc
    if client_ca is not None:
        try:
            context.load_verify_locations(cadata=client_ca.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as exc:
            raise ConfigError(f"server.tls.client_ca: {tls.client_ca} holds no PEM certificate") from exc
    return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=client_ca)


def _why(exc: OSError, tls: Tls) -> str:
    if getattr(exc, "reason", None) == "KEY_VALUES_MISMATCH":
        return f"the key in {tls.key} is not that of the certificate in {tls.certificate}"
    return f"{tls.certificate} and {tls.key} are not a certificate and its key in PEM without a pass phrase"
