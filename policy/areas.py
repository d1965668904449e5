"""The words in which a place is given: countries (ISO 3166-1), continents (as MaxMind assigns them) and blocs."""

from collections.abc import Mapping
from functools import lru_cache

_COUNTRIES = {
    "AF": "AO BF BI BJ BW CD CF CG CI CM CV DJ DZ EG EH ER ET GA GH GM GN GQ GW KE KM LR LS LY MA MG ML MR MU MW MZ NA "
    "NE NG RE RW SC SD SH SL SN SO SS ST SZ TD TG TN TZ UG YT ZA ZM ZW",
    "AN": "AQ BV GS HM TF",
    "AS": "AE AF AM AZ BD BH BN BT CC CN CX CY GE HK ID IL IN IO IQ IR JO JP KG KH KP KR KW KZ LA LB LK MM MN MO MV MY "
    "NP OM PH PK PS QA SA SG SY TH TJ TM TR TW UZ VN YE",
    "EU": "AD AL AT AX BA BE BG BY CH CZ DE DK EE ES FI FO FR GB GG GI GR HR HU IE IM IS IT JE LI LT LU LV MC MD ME MK "
    "MT NL NO PL PT RO RS RU SE SI SJ SK SM UA VA XK",
    "NA": "AG AI AW BB BL BM BQ BS BZ CA CR CU CW DM DO GD GL GP GT HN HT JM KN KY LC MF MQ MS MX NI PA PM PR SV SX TC "
    "TT US VC VG VI",
    "OC": "AS AU CK FJ FM GU KI MH MP NC NF NR NU NZ PF PG PN PW SB TK TL TO TV UM VU WF WS",
    "SA": "AR BO BR CL CO EC FK GF GY PE PY SR UY VE",
}
_CONTINENT_OF = {country: continent for continent, countries in _COUNTRIES.items() for country in countries.split()}

CONTINENTS: Mapping[str, str] = {
    "Africa": "AF", "Antarctica": "AN", "Asia": "AS", "Europe": "EU", "North America": "NA", "Oceania": "OC",
    "South America": "SA",
}  # fmt: skip
"""By name, because their codes are other things too: NA is Namibia, AS American Samoa, EU the Union."""

_EU = (
    "AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK "
    "AX GF GP MF MQ RE YT"  # parts of Finland and France with codes of their own where the Treaties apply
)
BLOCS: Mapping[str, str] = {"EU": _EU, "EEA": f"{_EU} IS LI NO"}
"""As of December 2026: the members of the Union (Article 52 of the Treaty on European Union) with the territories of
Article 355(1) and (4) of the Treaty on its Functioning; the EEA adds the EFTA states of the EEA Agreement."""


def continent_of(country: str | None) -> str | None:
    """Two letters, as in GeoLite2; None for no country, or none of the table (XX, T1, EU)."""
    return None if country is None else _CONTINENT_OF.get(country)


def on_continent(continent: str) -> frozenset[str]:
    """The countries of a continent, by its code."""
    return frozenset(_COUNTRIES[continent].split())


@lru_cache(maxsize=1024)
def countries(areas: tuple[str, ...]) -> frozenset[str]:
    """The countries of *areas*: each a country (DE), a bloc (EU, EEA) or a continent by its name (Europe).

    Raises ValueError for a word that is none of these.
    """
    return frozenset[str]().union(*(_countries(area) for area in areas))


def _countries(area: str) -> frozenset[str]:
    if area in _CONTINENT_OF:
        return frozenset((area,))
    if area in BLOCS:
        return frozenset(BLOCS[area].split())
    if area in CONTINENTS:
        return on_continent(CONTINENTS[area])
    raise ValueError(f"{area!r} is no country (ISO 3166-1, DE), no bloc ({', '.join(BLOCS)}) and no continent by name")
