"""A twin of a data set to take away: made from the card alone, so it costs nothing."""

from __future__ import annotations

import json
from typing import Final

from starlette.responses import Response

from sfumato.client.twin import archive
from sfumato.faces.console.page import Page
from sfumato.faces.console.visit import Visit


async def taken(visit: Visit) -> Response:
    """Send a schema twin as one archive, whose name says what it is."""
    made = await visit.call("twin", {"data_set": visit.at("data_set")})
    name = json.dumps(f"{made['name']}.zip")
    headers = {"Content-Disposition": f"attachment; filename={name}"}
    return Response(archive(made), media_type="application/zip", headers=headers)


PAGES: Final = (Page("GET", "/data-sets/{data_set}/twin", taken, ("twin",)),)
