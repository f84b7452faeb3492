"""Rights: principals, rules, and the one decision that all faces ask for."""

from .audit import Row, Trail, Use
from .audited import AuditedRights
from .authorizer import CLUSTER, AllowAll, Authorizer, Decision, Operation, Resource, ResourceKind
from .bearer import Bearer, BearerError, JwksTokens, OAuth, Tokens
from .certificates import CertificateUsers, MappingError
from .filters import may_match
from .granted import Granted, everything
from .identities import Content, Identities, User, with_rules, without_rules
from .leaders import CheckedLeaders
from .quotas import ANY, Allowance, Quota, Quotas, Rate, Spending, check_quota, places
from .rabbitmq import RabbitRights, missing
from .rules import EVERYBODY, EVERYTHING, Pattern, Permission, Rule, Rules
from .stored import StoredRights
from .users_file import ALL, UsersFileError, check_user_name, read_users, write_users

__all__ = [
    "ALL",
    "ANY",
    "CLUSTER",
    "EVERYBODY",
    "EVERYTHING",
    "AllowAll",
    "Allowance",
    "AuditedRights",
    "Bearer",
    "BearerError",
    "Authorizer",
    "CertificateUsers",
    "CheckedLeaders",
    "Content",
    "Decision",
    "Granted",
    "Identities",
    "JwksTokens",
    "MappingError",
    "OAuth",
    "Operation",
    "Pattern",
    "Permission",
    "Quota",
    "Quotas",
    "RabbitRights",
    "Rate",
    "Resource",
    "ResourceKind",
    "Row",
    "Rule",
    "Rules",
    "Spending",
    "StoredRights",
    "Tokens",
    "Trail",
    "Use",
    "User",
    "UsersFileError",
    "check_quota",
    "check_user_name",
    "everything",
    "may_match",
    "missing",
    "places",
    "read_users",
    "with_rules",
    "without_rules",
    "write_users",
]
