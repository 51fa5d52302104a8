"""The schemas of what threadfold writes and takes, generated from the structs that read it: JSON
Schemas, and an AsyncAPI document.
"""

from threadfold.schemas.documents import documents, schema_documents

__all__ = ["documents", "schema_documents"]
