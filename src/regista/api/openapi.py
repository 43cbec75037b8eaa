"""The OpenAPI 3.1 document, made from the operations that the router is made from."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from .. import __version__
from ..config import Config
from ..schemas.jobs import Accepted
from . import view
from .blueprint_endpoints import EndpointBody, submit_to_endpoint
from .blueprints import endpoint_of
from .curl_samples import curl_command
from .parameters import KEY, Parameter
from .problems import ProblemBody
from .routes import REFS, Media, Operation, RouteTable, Schema
from .stage import STAGE, Stage

routes = RouteTable("api")

#: Every tag of an operation, in the order of the document.
TAGS = {
    "jobs": "Start, follow and control jobs.",
    "searches": "Find, count and export jobs.",
    "streams": "Events as they happen.",
    "files": "Files and large values of jobs.",
    "blueprints": "The state machines that jobs run.",
    "workers": "Workers that perform tasks.",
    "tokens": "Credentials of workers.",
    "queues": "Waiting and running tasks.",
    "schedules": "Jobs that start by the clock.",
    "webhooks": "Deliveries to webhooks, and their secrets.",
    "audit": "Who did what.",
    "chores": "Background work of this instance.",
    "me": "The calling client.",
    "health": "For probes and load balancers. No token.",
    "api": "This document.",
}
_ABOUT = """A durable job orchestrator.

Every path below `/api/v1` answers below `/api` too. A refusal is `application/problem+json` with a stable
`code`. Lists are `{"items", "next"}`: hand `next` in for the page after. The worker protocol lives below
`/_worker` and has a reference of its own.
"""


@routes.get(
    "/api/openapi.json",
    also=("/api/v1/openapi.json",),
    kind="public",
    answers={200: Schema({"type": "object"})},
)
async def openapi(request: web.Request) -> web.Response:
    """Read this document."""
    return view.json(request.app[STAGE].document.encoded(request.app[STAGE]))


class OpenApiDocument:
    """The document as it is sent.

    To make it takes tens of milliseconds, and anybody may ask for it, without a token: it is made anew only when
    there are other blueprints than before.
    """

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations
        self._made_for: list[tuple[str, str | None]] | None = None
        self._made = msgspec.Raw()

    def encoded(self, stage: Stage) -> msgspec.Raw:
        """The JSON of it."""
        wanted = [(blueprint.name, endpoint_of(blueprint)) for blueprint in stage.library.blueprints()]
        if wanted != self._made_for:
            self._made = msgspec.Raw(view.encode(document(self.operations, stage)))
            self._made_for = wanted
        return self._made


def document(operations: list[Operation], stage: Stage) -> dict[str, Any]:
    """The whole document, with the limits of this orchestrator and the endpoints of its blueprints."""
    schemas, components = _schemas(operations)
    paths: dict[str, Any] = {}
    for operation in operations:
        result = _operation(operation, schemas, stage.config)
        result["x-codeSamples"] = [{"lang": "Shell", "label": "curl", "source": curl_command(operation)}]
        paths.setdefault(operation.paths()[0], {})[operation.method.lower()] = result
    for blueprint in stage.library.blueprints():
        path = endpoint_of(blueprint)
        if path is not None and path not in paths:
            paths[path] = {"post": _endpoint(blueprint.name, schemas, stage.config)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Regista", "version": __version__, "description": _ABOUT},
        "tags": [{"name": name, "description": words} for name, words in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "clientToken": {"type": "apiKey", "in": "header", "name": "X-Client-Token"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _records(operations: Iterable[Operation]) -> list[Any]:
    found: dict[Any, None] = {ProblemBody: None, EndpointBody: None, Accepted: None}
    for operation in operations:
        shapes = [operation.body, *operation.answers.values()]
        for shape in shapes:
            for record in shape.uses if isinstance(shape, Schema) else [shape]:
                if record is not None and not isinstance(record, Media):
                    found[record] = None
    return list(found)


def _schemas(operations: list[Operation]) -> tuple[dict[Any, Any], dict[str, Any]]:
    records = _records(operations)
    schemas, components = msgspec.json.schema_components(records, ref_template=REFS)
    return dict(zip(records, schemas, strict=True)), components


def _operation(operation: Operation, schemas: dict[Any, Any], config: Config) -> dict[str, Any]:
    result: dict[str, Any] = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description,
        "parameters": [
            *_path_parameters(operation.path),
            *(_parameter(each, config) for each in operation.parameters),
        ],
        "responses": _responses(operation, schemas),
    }
    if operation.kind == "client":
        result["security"] = [{"clientToken": []}, {"bearer": []}]
    if operation.body is not None:
        result["requestBody"] = _body(_schema(operation.body, schemas), operation.body_required)
    return result


def _body(schema: Any, required: bool) -> dict[str, Any]:
    return {"required": required, "content": {"application/json": {"schema": schema}}}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _parameter(parameter: Parameter, config: Config) -> dict[str, Any]:
    most = {} if parameter.most is None else {"maximum": getattr(config, parameter.most)}
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": False,
        "description": parameter.words,
        "schema": {**parameter.schema, **most},
    }


def _responses(operation: Operation, schemas: dict[Any, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for status, shape in operation.answers.items():
        result[str(status)] = {"description": HTTPStatus(status).phrase, **_content(shape, schemas)}
        if status == 202:
            result["202"]["headers"] = {"Location": {"schema": {"type": "string"}}}
        if status == 200:
            for kind in operation.media:
                result["200"]["content"][kind] = {}
    for status, words in sorted(_problems(operation).items()):
        result[str(status)] = {
            "description": words,
            "content": {"application/problem+json": {"schema": schemas[ProblemBody]}},
        }
    return result


def _content(shape: Any, schemas: dict[Any, Any]) -> dict[str, Any]:
    if shape is None:
        return {}
    if isinstance(shape, Media):
        return {"description": shape.words, "content": {kind: {} for kind in shape.types}}
    return {"content": {"application/json": {"schema": _schema(shape, schemas)}}}


def _schema(shape: Any, schemas: dict[Any, Any]) -> dict[str, Any]:
    return dict(shape) if isinstance(shape, Schema) else schemas[shape]


def _problems(operation: Operation) -> dict[int, str]:
    """What every operation of its kind may refuse, and what this one does."""
    result: dict[int, str] = {429: "too often; `Retry-After` says when to come back"}
    if operation.parameters or operation.body is not None or operation.kind == "client":
        result[400] = "malformed or invalid"
        result[431] = "the address or a header is too long (from nginx; the server itself answers 400)"
    if operation.kind == "client":
        result[401] = "no client token, or an unknown one"
        result[503] = "starting, stopping, or the store has failed; try again"
    if operation.operator:
        result[403] = "for operators only"
    if operation.body is not None:
        result[408] = "the body did not come in time"
        result[413] = "the body is too large"
        result[415] = "the body is packed in a way that is not understood here"
        result[503] = "starting, stopping, or the store has failed; try again"
    return result | dict(operation.problems)


def _endpoint(blueprint: str, schemas: dict[Any, Any], config: Config) -> dict[str, Any]:
    """The operation of a blueprint's own endpoint."""
    operation = Operation(
        method="POST",
        path="",
        handler=submit_to_endpoint,
        tag="jobs",
        parameters=[KEY],
        body=EndpointBody,
        body_required=False,
        answers={202: Accepted},
        problems={409: "the key was used before with another body"},
    )
    result = _operation(operation, schemas, config)
    del result["responses"]["202"]["headers"]
    summary = f"Start a job of the blueprint {blueprint}, as the documents ask for it."
    return result | {"operationId": f"start_{blueprint}", "summary": summary, "description": summary}
