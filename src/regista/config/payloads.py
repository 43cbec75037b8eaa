"""Settings of the payload store: where files and large values lie, and how they are reached."""

from typing import Protocol

from .settings import SWITCH, TOKEN, Setting, count, text

#: What an orchestrator and its workers must say alike. In the order of docs/reference/settings.md.
PAYLOAD_SETTINGS = (
    Setting(
        "REGISTA_PAYLOADS",
        "payloads",
        text(
            "off, memory, file:PATH, s3://BUCKET or s3://BUCKET/PREFIX",
            r"(off|memory|file:.+|s3://[^/]+(/.*)?)?",
        ),
    ),
    Setting("S3_ENDPOINT_URL", "s3_endpoint_url", text("an http or https URL, or empty", r"(https?://\S+)?")),
    Setting("S3_ACCESS_KEY", "s3_access_key", TOKEN),
    Setting("S3_SECRET_KEY", "s3_secret_key", TOKEN),
    Setting("S3_REGION", "s3_region", text("the name of a region", r"\S+")),
    Setting("S3_DEFAULT_BUCKET", "s3_default_bucket", text("the name of a bucket", r"[^\s/]+")),
    Setting("S3_MAX_CONCURRENCY", "s3_max_concurrency", count(1)),
    Setting("TASK_FILES_DIR", "task_files_dir", text("a directory, or empty", r".*")),
)
#: What only an orchestrator does with it.
KEEPING_SETTINGS = (
    Setting("S3_AUTO_CLEANUP", "s3_auto_cleanup", SWITCH),
    Setting("REGISTA_OFFLOAD_BYTES", "offload_bytes", count(0)),
    Setting("REGISTA_MAX_FILE_BYTES", "max_file_bytes", count(1)),
)

#: The bucket where none is named.
DEFAULT_BUCKET = "regista-payloads"
DEFAULT_REGION = "us-east-1"


class PayloadConfig(Protocol):
    """The settings above; `Config` and `WorkerConfig` have them."""

    @property
    def payloads(self) -> str: ...
    @property
    def s3_endpoint_url(self) -> str: ...
    @property
    def s3_access_key(self) -> str: ...
    @property
    def s3_secret_key(self) -> str: ...
    @property
    def s3_region(self) -> str: ...
    @property
    def s3_default_bucket(self) -> str: ...
    @property
    def s3_max_concurrency(self) -> int: ...
    @property
    def task_files_dir(self) -> str: ...


def payloads_url(config: PayloadConfig) -> str:
    """The payload store that the settings name, in one word; empty: there is none.

    `REGISTA_PAYLOADS` wins. Without it an S3 server or an S3 key is enough: then it is the default bucket.
    """
    if config.payloads:
        return "" if config.payloads == "off" else config.payloads
    if config.s3_endpoint_url or config.s3_access_key:
        return f"s3://{config.s3_default_bucket}"
    return ""
