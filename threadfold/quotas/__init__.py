"""What tenants may use: token buckets in Redis, shared by all gateways, of which each gateway
leases portions before it runs out.
"""

from threadfold.quotas.quotas import KINDS, Quotas
from threadfold.quotas.shared import SharedBuckets

__all__ = ["KINDS", "Quotas", "SharedBuckets"]
