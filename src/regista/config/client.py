"""The settings of whoever calls an orchestrator: the client library and the command line."""

from typing import Annotated, ClassVar

from .edge import FILE
from .settings import SWITCH, TOKEN, Settings, env, seconds, text


class Connection(Settings, frozen=True, kw_only=True):
    """Where the orchestrator is, and how to authenticate there."""

    SECTIONS: ClassVar = {"url": "Clients and the command line"}

    url: Annotated[
        str,
        env(
            "REGISTA_URL",
            kind=text("an http or https URL", "(https?://\\S+)?"),
            help=(
                "Where the orchestrator is. Empty means: where one on this machine says in `REGISTA_DIR/url` that"
                " it is, else `http://127.0.0.1:8080`. A path at the end is kept, for one that is mounted below a"
                " prefix."
            ),
        ),
    ] = ""
    token: Annotated[
        str,
        env(
            "CLIENT_TOKEN",
            kind=TOKEN,
            help=(
                "The token that is sent with every request. Empty means: the one that a local orchestrator left "
                "in `REGISTA_DIR/client.token`."
            ),
        ),
    ] = ""
    tls_ca_path: Annotated[
        str,
        env(
            "TLS_CA_PATH",
            kind=FILE,
            help=(
                "The authority that must have signed the orchestrator's certificate, in PEM. Empty trusts whom "
                "this machine trusts."
            ),
        ),
    ] = ""
    tls_cert_path: Annotated[
        str,
        env(
            "TLS_CERT_PATH",
            kind=FILE,
            help=(
                "The certificate that is shown to an orchestrator which asks for one (`TLS_REQUIRE_CLIENT_CERT`),"
                " in PEM."
            ),
        ),
    ] = ""
    tls_key_path: Annotated[
        str,
        env(
            "TLS_KEY_PATH",
            kind=FILE,
            help="The key of the certificate that is shown, in PEM. Empty means that it lies in the same file.",
        ),
    ] = ""
    state_dir: Annotated[
        str,
        env(
            "REGISTA_DIR",
            kind=text("a directory", ".+"),
            help=(
                "Where a local orchestrator has left its tokens and its address. Tokens are readable by their "
                "owner only, so only who may find them does. Only an address of this machine is believed."
            ),
        ),
    ] = ".regista"
    timeout_s: Annotated[
        float,
        env(
            "REGISTA_TIMEOUT_SECONDS",
            kind=seconds(zero=False),
            help=(
                "How long the client library puts up with an orchestrator that does not answer, or asks for "
                "patience, before it raises `Unreachable`. Waiting for a job does not count. One that has never "
                "answered is waited for for 3 seconds (`Client(first_contact_s=3.0)`)."
            ),
        ),
    ] = 30.0
    json: Annotated[
        bool,
        env(
            "REGISTA_JSON",
            kind=SWITCH,
            help=(
                "Whether commands answer in JSON, as with `--json`: one document, or one per line for what "
                "streams."
            ),
        ),
    ] = False
    debug: Annotated[
        bool,
        env(
            "REGISTA_DEBUG",
            kind=SWITCH,
            help=(
                "Whether a command that fails shows the traceback, as with `--debug`. Without it an error is one "
                "line."
            ),
        ),
    ] = False
