"""Which address each tier is asked at. Pure."""

from loadtest import endpoint
from loadtest.endpoint import Endpoint
from loadtest.plan import Target, Tier
from tierscope.errors import BadInputError


def address(target: Target, tier: Tier, path: str) -> Endpoint:
    """Where a tier's requests go: to the tier's own URL, if it has one. Raises BadInputError."""
    if tier.url is None:
        return endpoint.parse(target.url, path)
    try:
        return endpoint.parse(tier.url, path)
    except BadInputError as error:
        raise BadInputError(f"tier {tier.name}: {error}") from error
