"""Real certificates for tests, by the script of deploy/ that people use."""

import subprocess
from pathlib import Path
from typing import Any

from tests.conftest import require_binary

_SCRIPT = Path(__file__).parents[1] / "deploy" / "make-certificates"


class Authority:
    """A private authority in a folder of its own, and what it has signed."""

    def __init__(self, folder: Path, *workers: str) -> None:
        self.folder = folder
        require_binary("openssl")
        self.sign("localhost", "127.0.0.1", *(f"worker:{name}" for name in workers))

    def sign(self, *names: str) -> None:
        """Further certificates."""
        done = subprocess.run([str(_SCRIPT), str(self.folder), *names], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.pem")

    def cert(self, name: str = "server") -> str:
        return str(self.folder / f"{name}.pem")

    def key(self, name: str = "server") -> str:
        return str(self.folder / f"{name}.key")

    @property
    def served(self) -> dict[str, Any]:
        """The settings of an orchestrator that serves with it."""
        return {"tls_cert_path": self.cert(), "tls_key_path": self.key()}

    def subject(self, name: str, subject: str, *more: str) -> None:
        """A certificate for a client with any subject, `/CN=a/CN=b`; `more` goes to `openssl x509`."""
        csr, pem = self.folder / f"{name}.csr", self.cert(name)
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        ask = ["openssl", "req", *curve, "-subj", subject, "-keyout", self.key(name), "-out", str(csr)]
        signer = ["-CA", self.ca, "-CAkey", str(self.folder / "ca.key"), "-CAcreateserial"]
        grant = ["openssl", "x509", "-req", "-in", str(csr), *signer, "-out", pem, *(more or ("-days", "2"))]
        for command in (ask, grant):
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
