"""The part of the schema of SARIF 2.1.0 that our logs use, and no more than that."""

GUID = r"^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"


def every(**properties):
    """An object that has these and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def some(schema, *optional):
    return {**schema, "required": [name for name in schema["required"] if name not in optional]}


TEXT = every(text={"type": "string", "minLength": 1})
LEVEL = {"enum": ["none", "note", "warning", "error"]}
RULE = every(
    id={"type": "string"},
    name={"type": "string", "pattern": "^([A-Z][a-z]+)+$"},
    shortDescription=TEXT,
    fullDescription=TEXT,
    help=TEXT,
    defaultConfiguration=every(level=LEVEL),
)
PLACE = every(
    physicalLocation=every(
        artifactLocation=every(
            # A relative path of RFC 3986, which climbs nowhere.
            uri={
                "type": "string",
                "pattern": r"^(?!/)([A-Za-z0-9._~-]|%[0-9A-F]{2}|/)+$",
                "not": {"pattern": r"(^|/)\.{1,2}(/|$)"},
            }
        ),
        region=every(startLine={"type": "integer", "minimum": 1}),
    ),
    logicalLocations={
        "type": "array",
        "items": every(fullyQualifiedName={"type": "string"}, kind={"type": "string"}),
    },
)
RESULT = some(
    every(
        ruleId={"type": "string"},
        level=LEVEL,
        message=TEXT,
        locations={"type": "array", "minItems": 1, "maxItems": 1, "items": PLACE},
        partialFingerprints=every(
            primaryLocationLineHash={"type": "string", "pattern": "^[0-9a-f]{32}:[0-9]+$"}
        ),
        baselineState={"enum": ["new", "unchanged", "updated", "absent"]},
        suppressions={
            "type": "array",
            "items": every(
                kind={"enum": ["inSource", "external"]},
                status={"enum": ["accepted", "underReview", "rejected"]},
                justification={"type": "string"},
            ),
        },
        properties={"type": "object"},
    ),
    "baselineState",
)
RUN = some(
    every(
        tool=every(
            driver=some(
                every(
                    name={"type": "string"},
                    version={"type": "string"},
                    rules={"type": "array", "items": RULE, "uniqueItems": True},
                    properties={"type": "object"},
                ),
                "properties",
            )
        ),
        automationDetails=some(
            every(id={"type": "string"}, guid={"type": "string", "pattern": GUID}), "guid"
        ),
        baselineGuid={"type": "string", "pattern": GUID},
        results={"type": "array", "items": RESULT},
    ),
    "baselineGuid",
)
LOG = every(
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"const": "2.1.0"},
    runs={"type": "array", "minItems": 1, "maxItems": 1, "items": RUN},
)
