"""Settings of the payload store: where files and large values are, and how they are reached."""

from typing import Annotated, ClassVar

from .settings import TOKEN, count, env, text
from .telemetry import TelemetrySettings

#: The bucket where none is named.
DEFAULT_BUCKET = "regista-payloads"
DEFAULT_REGION = "us-east-1"


class PayloadSettings(TelemetrySettings, frozen=True, kw_only=True):
    """Which payload store an orchestrator and its workers use: they must say the same."""

    SECTIONS: ClassVar = {**TelemetrySettings.SECTIONS, "payloads": "Files and large values"}

    payloads: Annotated[
        str,
        env(
            "REGISTA_PAYLOADS",
            kind=text(
                "off, memory, file:PATH, s3://BUCKET or s3://BUCKET/PREFIX",
                "(off|memory|file:.+|s3://[^/]+(/.*)?)?",
            ),
            help=(
                "Where [files and large values](../howto/files.md) lie: `s3://BUCKET`, `s3://BUCKET/PREFIX`"
                " or `file:PATH` (an absolute path, in a directory that is there), or `memory` for tests; "
                "S3 needs the extra `regista[s3]`. Empty is the bucket `S3_DEFAULT_BUCKET` if "
                "`S3_ENDPOINT_URL` or `S3_ACCESS_KEY` is set, else nowhere; `off` is nowhere in any case. A"
                " worker needs the same as its orchestrator for functions that work with files; without it "
                "the worker still does every other task."
            ),
        ),
    ] = ""
    s3_endpoint_url: Annotated[
        str,
        env(
            "S3_ENDPOINT_URL",
            kind=text("an http or https URL, or empty", "(https?://\\S+)?"),
            help=(
                "The S3 server. Empty is AWS, where the bucket is part of the host name; with another server it "
                "is part of the path."
            ),
        ),
    ] = ""
    s3_access_key: Annotated[
        str,
        env(
            "S3_ACCESS_KEY",
            kind=TOKEN,
            help=(
                "Who we are to the S3 server. Empty: found where AWS programs find it (`AWS_…`, a role of the "
                "machine)."
            ),
        ),
    ] = ""
    s3_secret_key: Annotated[
        str,
        env(
            "S3_SECRET_KEY",
            kind=TOKEN,
            help=(
                "What proves it: the secret that belongs to `S3_ACCESS_KEY`. It is never shown, in logs or in "
                "errors."
            ),
        ),
    ] = ""
    s3_region: Annotated[
        str,
        env(
            "S3_REGION",
            kind=text("the name of a region", "\\S+"),
            help=(
                "The region of the bucket. Signatures name it, so it must be right even where a server knows only"
                " one."
            ),
        ),
    ] = DEFAULT_REGION
    s3_default_bucket: Annotated[
        str,
        env(
            "S3_DEFAULT_BUCKET",
            kind=text("the name of a bucket", "[^\\s/]+"),
            help=(
                "The bucket, where `REGISTA_PAYLOADS` is empty and another `S3_` setting says that there is one. "
                "It must exist."
            ),
        ),
    ] = DEFAULT_BUCKET
    s3_max_concurrency: Annotated[
        int,
        env(
            "S3_MAX_CONCURRENCY",
            kind=count(1),
            help=(
                "How many files this process reads, and how many it writes, at once. What comes beyond that "
                "waits. Links that an orchestrator serves itself have as many turns of their own, of which one "
                "client has a quarter; large values have theirs."
            ),
        ),
    ] = 100
    task_files_dir: Annotated[
        str,
        env(
            "TASK_FILES_DIR",
            kind=text("a directory, or empty", ".*"),
            help=(
                "Where the directories of jobs and attempts are on this machine (`TaskFiles.path`). Empty is "
                "`regista-files` below the system's own directory for temporary files."
            ),
        ),
    ] = ""


def payloads_url(config: PayloadSettings) -> str:
    """The payload store that the settings name, in one word; empty: there is none.

    `REGISTA_PAYLOADS` wins. Without it an S3 server or an S3 key is enough: then it is the default bucket.
    """
    if config.payloads:
        return "" if config.payloads == "off" else config.payloads
    if config.s3_endpoint_url or config.s3_access_key:
        return f"s3://{config.s3_default_bucket}"
    return ""
