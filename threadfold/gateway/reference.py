"""The pages for readers: ``/docs`` with nothing from another host, the AsyncAPI document and the
JSON Schemas. No key is needed.

Swagger UI's files come from the package ``fastapi-offline``, because FastAPI's own page takes them
from a content network, which fails behind a firewall and tells others who reads. The page's
security policy lets the browser ask this host alone.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, Response

from threadfold.gateway.problems import problem
from threadfold.schemas.documents import texts

router = APIRouter()
_ASSETS = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "favicon.png": "image/png",
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>threadfold</title>
<link rel="icon" href="docs/favicon.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="page"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#page",
  deepLinking: true,
  validatorUrl: null,
  defaultModelsExpandDepth: 0,
  persistAuthorization: false,
  tryItOutEnabled: true
});
"""
_POLICY = (
    "default-src 'none'; connect-src 'self'; font-src 'self' data:; img-src 'self' data:;"
    " script-src 'self'; style-src 'self' 'unsafe-inline'"
)
_HOUR = {"Cache-Control": "public, max-age=3600"}


@router.get("/docs", include_in_schema=False)
async def docs() -> Response:
    """The API's documentation as a page."""
    return Response(
        _PAGE, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": _POLICY}
    )


@router.get("/docs/{asset}", include_in_schema=False)
async def docs_asset(asset: str) -> Response:
    """A file of the page."""
    if asset == "start.js":
        return Response(_START, media_type="text/javascript; charset=utf-8", headers=_HOUR)
    if asset not in _ASSETS:
        return problem(404, "NotFound", "there is no such file of the page /docs")
    return FileResponse(
        Path(str(files("fastapi_offline") / "static" / asset)),
        media_type=_ASSETS[asset],
        headers=_HOUR,
    )


@router.get("/asyncapi.json")
async def asyncapi() -> Response:
    """The topics, for services that speak Kafka: AsyncAPI 3.0."""
    return Response(texts()["asyncapi.json"], media_type="application/json")


@router.get("/schemas/{name}.json")
async def schema(name: str) -> Response:
    """The JSON Schema (2020-12) of an event type: `message` is the CloudEvent in the log,
    `message.flat` what is appended over HTTP.
    """
    text = texts().get(f"{name}.json")
    if text is None or name == "asyncapi":
        known = ", ".join(file.removesuffix(".json") for file in texts() if file != "asyncapi.json")
        return problem(404, "UnknownSchema", f"there is no schema {name[:60]!r}: there are {known}")
    return Response(text, media_type="application/schema+json")
