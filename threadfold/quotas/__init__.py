"""What tenants may use: token buckets in Redis, shared by all gateways, of which each gateway
leases portions before it runs out.
"""

from threadfold.quotas.quotas import KINDS, Quotas
from threadfold.quotas.use import QuotaUse

__all__ = ["KINDS", "QuotaUse", "Quotas"]
