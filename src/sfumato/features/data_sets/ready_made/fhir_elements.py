"""Read elements of FHIR resources: references, codes, dates and quantities."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

Resource = Mapping[str, Any]  # Any: JSON
OTHER: Final = "other"
SYSTEMS: Final[Mapping[str, str]] = {
    "http://snomed.info/sct": "SNOMED",
    "http://loinc.org": "LOINC",
    "http://www.nlm.nih.gov/research/umls/rxnorm": "RxNorm",
    "http://hl7.org/fhir/sid/icd-10": "ICD-10",
    "http://hl7.org/fhir/sid/icd-10-cm": "ICD-10-CM",
    "http://hl7.org/fhir/sid/icd-9-cm": "ICD-9-CM",
    "http://fhir.de/CodeSystem/bfarm/icd-10-gm": "ICD-10-GM",
    "http://fhir.de/CodeSystem/dimdi/icd-10-gm": "ICD-10-GM",
    "http://www.whocc.no/atc": "ATC",
    "http://fhir.de/CodeSystem/bfarm/atc": "ATC",
    "http://hl7.org/fhir/sid/ndc": "NDC",
    "http://hl7.org/fhir/sid/cvx": "CVX",
    "http://www.ama-assn.org/go/cpt": "CPT",
}
_DAY: Final = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d))?)?(?:T.*)?")


def child(resource: object, *path: str) -> Any:  # Any: JSON
    """Return an element of a resource by its path, the first of a list; None if it is missing."""
    for name in path:
        if isinstance(resource, list):
            resource = resource[0] if resource else None
        resource = resource.get(name) if isinstance(resource, Mapping) else None
    return resource


def text(value: object) -> str:
    """Return a value as the text of a cell; a list or an object has none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip() if isinstance(value, str | int | float) else ""


def reference(element: object, kind: str) -> str:
    """Return the id that a reference to a resource of that kind has; "" for another kind.

    It may be `Patient/1`, an address that ends so, with `/_history/2`, or `urn:uuid:...`.
    """
    found = text(child(element, "reference"))
    if found.startswith(("urn:uuid:", "urn:oid:")):
        named = text(child(element, "type"))
        return found.rpartition(":")[2] if named in ("", kind) else ""
    parts = found.partition("/_history/")[0].rstrip("/").split("/")
    return parts[-1] if len(parts) > 1 and parts[-2] == kind else ""


def day(value: object) -> str:
    """Return a date or an instant as a day; a year or a month is its first day."""
    found = _DAY.fullmatch(text(value))
    return f"{found[1]}-{found[2] or '01'}-{found[3] or '01'}" if found else ""


def first_day(resource: Resource, *paths: str) -> str:
    """Return the day of the first of these elements that is there: `onsetPeriod.start`."""
    days = (day(child(resource, *path.split("."))) for path in paths)
    return next(filter(None, days), "")


def coding(concept: object, wanted: Sequence[str]) -> tuple[str, str, str]:
    """Return code, system and display of a concept: of one wanted system, else the first coding.

    Args:
        concept: A CodeableConcept, a Coding, or a list of them.
        wanted: The names of systems, the most wanted first.
    """
    one = concept[0] if isinstance(concept, list) and concept else concept
    codings = child(one, "coding")
    if not isinstance(codings, list):
        codings = [one]
    found = [each for each in codings if isinstance(each, Mapping) and text(each.get("code"))]
    if not found:
        return "", "", ""
    systems = [SYSTEMS.get(text(each.get("system")).rstrip("/"), OTHER) for each in found]
    place = next((systems.index(system) for system in wanted if system in systems), 0)
    return text(found[place]["code"]), systems[place], text(found[place].get("display"))


def code(concept: object) -> str:
    """Return the code of a concept's first coding; "" if it has none."""
    return coding(concept, ())[0]
