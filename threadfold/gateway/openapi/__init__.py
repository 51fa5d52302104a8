"""The OpenAPI document of the gateway, with schemas and examples of every operation."""

from threadfold.gateway.openapi.document import install, openapi_document

__all__ = ["install", "openapi_document"]
