"""Every service method says for whom it acts."""

import inspect
import subprocess
import sys
from typing import get_type_hints

import pytest

from regista import services
from regista.services import Caller, Services, TokenService

#: What needs no caller, because the permission is in what is handed over, or nothing of a client is shown.
WITHOUT_CALLER = {
    "ApprovalService.check_token",  # the token is the permission
    "AuditService.stop",
    "BlueprintService.find_by_path",  # blueprints belong to no client
    "BlueprintService.has_version_prefix",
    "FileService.check_link",  # the signature is the permission, here and for what follows it
    "FileService.linked_download",
    "FileService.linked_upload",
    "JobDetailsReader.accepted",  # of a job that the caller has just created
    "JobService.check_batch_size",
    "SearchService.count",  # `query` has restricted the query to its caller
    "SearchService.export",
    "SearchService.find",
    "SystemService.check_ready",
}
METHODS = {
    f"{service.__name__}.{name}": method
    for service in [*get_type_hints(Services).values(), TokenService]
    for name, method in inspect.getmembers(service, inspect.isfunction)
    if not name.startswith("_")
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_its_caller_first(name: str) -> None:
    parameters = list(inspect.signature(METHODS[name]).parameters)[1:]
    takes = parameters[:1] == ["caller"] and get_type_hints(METHODS[name])["caller"] is Caller
    assert takes != (name in WITHOUT_CALLER)


def test_the_exceptions_are_methods() -> None:
    assert METHODS.keys() >= WITHOUT_CALLER


def test_services_load_no_http_library() -> None:
    program = f"import sys, {services.__name__}; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
