"""All formats of one report, side by side."""

import json
import subprocess
import sys

from support.outcomes.examples import names_alone

from auditor.formats import View
from auditor.formats.registry import FORMATS


def test_all_formats_of_one_report_agree():
    view = View()
    [text] = FORMATS["terminal"]([names_alone()], view).values()
    [lines] = FORMATS["json"]([names_alone()], view).values()
    tables = FORMATS["csv"]([names_alone()], view)
    assert text == (
        "some/folder \N{MIDDLE DOT} BertModel \N{MIDDLE DOT} 0 files\n"
        "\n"
        "OK  All 2 tensors that BertModel needs are named by the index; shapes unknown.\n"
        "\n"
        "module         expected\n"
        "(whole model)        12\n"
        "\n"
        "Not checked: shapes and dtypes. -v says more.\n"
    )
    outcome = json.loads(lines)
    assert outcome["verdict"] == "clean"
    assert outcome["observed"]["tensors"] == 2
    assert outcome["observed"]["parameters"] is None
    assert outcome["modules"][0]["expected"] == 12
    assert tables["models.csv"].splitlines()[1] == (
        "some/folder,some/folder,,folder,BertModel,bert,clean,,,12,,,,,2,0,,0,0,0,0,"
        "shapes and dtypes: no shard of the index is here,0,0,,closed-form,3*D,"
        "read from a folder of this machine,"
    )
    assert tables["modules.csv"].splitlines()[1] == (
        "some/folder,,(whole model),0,2,,,12,,unchecked,3*D,,,,"
    )
    assert tables["findings.csv"].splitlines()[1:] == []


def test_several_reports_follow_each_other():
    view = View()
    [text] = FORMATS["terminal"]([names_alone(), names_alone()], view).values()
    [lines] = FORMATS["json"]([names_alone(), names_alone()], view).values()
    assert text.count("OK  ") == 2
    assert len(lines.splitlines()) == 2
    assert len(FORMATS["csv"]([names_alone()] * 2, view)["models.csv"].splitlines()) == 3


def test_the_formats_for_machines_do_not_wait_for_rich():
    code = "import sys, auditor.formats; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603
