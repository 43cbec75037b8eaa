"""Which payload store the settings mean. The libraries behind them are loaded only here, and only then."""

import logging
from pathlib import Path

from ..config.payloads import PayloadSettings, payloads_url
from ..errors import ConfigError
from .base import PayloadStore

log = logging.getLogger("regista.payloads")


def build_payloads(config: PayloadSettings) -> PayloadStore | None:
    """The payload store that the settings name; None: there is none."""
    url = payloads_url(config)
    if not url:
        return None
    try:
        return _build(url, config)
    except ModuleNotFoundError as error:
        got = f"no module named {error.name}"
        raise ConfigError("REGISTA_PAYLOADS", "the s3 extra (pip install 'regista[s3]')", got) from None


def _build(url: str, config: PayloadSettings) -> PayloadStore:
    kind, _, rest = url.partition(":")
    if kind == "memory":
        from .memory import MemoryPayloads

        return MemoryPayloads()
    if kind == "file":
        return _local(Path(rest.removeprefix("//")), config)
    from .s3 import S3Service

    bucket, _, prefix = rest.removeprefix("//").partition("/")
    return S3Service(bucket, prefix.strip("/"), config)


def _local(directory: Path, config: PayloadSettings) -> PayloadStore:
    """A directory. A relative one is another for every process that starts somewhere else, so that is said."""
    from .directory import DirectoryPayloads

    store = DirectoryPayloads(directory, config.s3_max_concurrency)
    if not directory.is_absolute():
        log.warning(
            "REGISTA_PAYLOADS: file:%s is %s for this process; workers that start elsewhere would use another "
            "directory, so give all of them the absolute path",
            directory,
            directory.absolute(),
            extra={"action": "payloads_relative"},
        )
    return store
