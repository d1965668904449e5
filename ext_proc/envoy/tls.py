"""How Envoy speaks TLS with our workers."""

from pathlib import Path

from envoy_data_plane.envoy.config.core.v3 import DataSource, TransportSocket
from envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 import (
    CertificateValidationContext,
    CommonTlsContext,
    SubjectAltNameMatcher,
    SubjectAltNameMatcherSanType,
    TlsCertificate,
    TlsParameters,
    TlsParametersTlsProtocol,
    UpstreamTlsContext,
)
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher
from envoy_data_plane.google.protobuf import Any

from ext_proc.config import Config
from ext_proc.envoy.common import is_ip
from ext_proc.errors import ConfigError


def socket(config: Config, host: str) -> TransportSocket | None:
    """None: plain text. *host* is where Envoy finds us. Raises ConfigError where Envoy is not told enough."""
    ours, theirs = config.server.tls, config.envoy.tls
    if ours is None:
        return None
    if theirs is None:
        raise ConfigError("envoy.tls.ca: missing; server.tls is on, so Envoy must know whose certificate to believe")
    if ours.client_ca is not None and theirs.certificate is None:
        raise ConfigError("envoy.tls.certificate: missing; server.tls.client_ca asks Envoy for one (and its key)")
    name = theirs.name or host
    context = UpstreamTlsContext(
        sni="" if is_ip(name) else name,
        common_tls_context=CommonTlsContext(
            alpn_protocols=["h2"],
            tls_params=TlsParameters(tls_minimum_protocol_version=TlsParametersTlsProtocol.TLSv1_2),
            tls_certificates=[] if theirs.certificate is None else [_certificate(theirs.certificate, theirs.key)],
            validation_context=CertificateValidationContext(
                trusted_ca=_file(theirs.ca), match_typed_subject_alt_names=[_named(name)]
            ),
        ),
    )
    return TransportSocket(name="envoy.transport_sockets.tls", typed_config=Any.pack(context))


def _certificate(certificate: Path, key: Path | None) -> TlsCertificate:
    return TlsCertificate(certificate_chain=_file(certificate), private_key=None if key is None else _file(key))


def _named(name: str) -> SubjectAltNameMatcher:
    kind = SubjectAltNameMatcherSanType.IP_ADDRESS if is_ip(name) else SubjectAltNameMatcherSanType.DNS
    return SubjectAltNameMatcher(san_type=kind, matcher=StringMatcher(exact=name))


def _file(path: Path) -> DataSource:
    return DataSource(filename=str(path))
