"""Secrets: recognised by their variables, found in each spelling, removed from exports, kept out of the folder."""

import base64
import bz2
import errno
import functools
import gzip
import io
import json
import lzma
import os
import re
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ci_perf.cli import program
from ci_perf.guard import unpack
from ci_perf.guard.guard import Guard, names_in_file, variables_in_file
from ci_perf.guard.redact import redact, redact_run
from ci_perf.guard.secrets import FILES_OF_A_JOB, Rules, is_secret_name
from ci_perf.guard.spellings import names_in, needles_of
from ci_perf.traces import nsys
from ci_perf.traces.nsys import scrub as nsys_scrub
from ci_perf.values.measurement import Failure
from ci_perf.values.run import Note
from tests.builders import a_measurement, a_run
from tests.corpus import CAPTURES, files
from tests.project.test_project import ROOT

SECRET = 'hunter2/"x"+y&z='
NEEDLES = needles_of({"PASSWORD": SECRET})
PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=6, max_size=40)
PRINTABLE = PRINTABLE.filter(lambda value: value not in "[KEY withheld]")


def lower_hex(text):
    return re.sub("%..", lambda found: found[0].lower(), text)


def dump(text, line):
    """Dump a text as xxd and `hexdump -C` do, 16 bytes in a line."""
    raw = text.encode()
    rows = ((at, raw[at : at + 16]) for at in range(0, len(raw), 16))
    return "\n" + "\n".join(line(at, row) for at, row in rows) + "\n"


def xxd(at, row):
    return f"{at:08x}: {row.hex(' ', 2)}  {row.decode('ascii', 'replace')}"


def hexdump(at, row):
    return f"{at:08x}  {row[:8].hex(' ')}  {row[8:].hex(' ')}  |{row.decode('ascii', 'replace')}|"


SPELLINGS = {
    "plain": str,
    "URL-encoded, as a path": quote,
    "URL-encoded, all but letters and digits": lambda value: quote(value, safe=""),
    "URL-encoded, as JavaScript does": lambda value: quote(value, safe="!'()*~"),
    "URL-encoded, as Go does": lambda value: quote(value, safe="$&+,/:;=@"),
    "URL-encoded, in lower case": lambda value: lower_hex(quote(value, safe="")),
    "URL-encoded, each byte": lambda value: "".join(f"%{byte:02X}" for byte in value.encode()),
    "as a URL's query": quote_plus,
    "JSON": json.dumps,
    "hexadecimal": lambda value: value.encode().hex(),
    "hexadecimal, in capitals": lambda value: value.encode().hex().upper(),
    "hexadecimal, dumped by xxd": lambda value: dump(f"before {value} after", xxd),
    "hexadecimal, dumped by hexdump": lambda value: dump(f"before {value} after", hexdump),
    "hexadecimal, in pairs": lambda value: value.encode().hex(":"),
    "hexadecimal, as an array of C": lambda value: ", ".join(f"0x{byte:02X}" for byte in value.encode()),
    "hexadecimal, as a string of C": lambda value: "".join(f"\\x{byte:02x}" for byte in value.encode()),
    "JSON with all of Unicode": lambda value: json.dumps(value, ensure_ascii=False),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@given(value=PRINTABLE | st.sampled_from(["000%00", "a%2525b", "100%25sure", "it's me & you"]))
def test_a_value_is_found_in_every_spelling(spelling, value):
    spelled = SPELLINGS[spelling](value)
    needles = needles_of({"KEY": value})
    redacted = redact(f"no login: {spelled} !", needles)

    assert names_in([f"..{spelled}..".encode()], needles) == {"KEY"}
    assert "[KEY withheld]" in redacted
    assert names_in([redacted.encode()], needles) == frozenset()


@given(value=PRINTABLE, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_a_value_is_found_in_base64_whatever_stands_before_and_after_it(value, before, after):
    raw = before + value.encode() + after

    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert names_in([encode(raw)], needles_of({"KEY": value})) == {"KEY"}


@given(value=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=20), before=st.binary(max_size=90))
def test_a_value_is_found_where_base64_is_cut_into_lines(value, before):
    wrapped = base64.encodebytes(before + value.encode() + b"\n" * 9)
    needles = needles_of({"KEY": value})

    for line_end in (b"\n", b"\r\n", b"\n        ", b"\n\t", b"\\n", b'",\n  "', b" \\\n"):
        assert names_in([wrapped.replace(b"\n", line_end)], needles) == {"KEY"}
    assert names_in([redact(wrapped.decode(), needles).encode()], needles) == frozenset()


PEM = (
    "-----BEGIN PRIVATE KEY-----\n"
    + "\n".join(letter * 30 + "+/9x" for letter in "ABCDE")
    + "\n-----END PRIVATE KEY-----"
)


@pytest.mark.parametrize("joint", ["\n", "\r\n", "\n  ", "\\n", "\\\\n", " ", "", "%0A", "\n2026-01-01 log: "])
@pytest.mark.parametrize("value", [PEM, PEM.replace("\n", "\r\n"), PEM.replace("\n", "\\n")])
def test_a_private_key_is_found_whatever_became_of_its_line_ends(value, joint):
    assert names_in([b"key: " + PEM.replace("\n", joint).encode()], needles_of({"KEY": value})) == {"KEY"}


def test_what_only_resembles_a_value_is_not_one():
    needles = needles_of({"A": "my-secret-1", "PIN": "1234567890", "C": 'a"b\\c"d'})
    texts = ("my_secret_1", "my/secret1", "mysecret1", "12345\n67890", "1234 567890", "abcd", "ab c d")

    assert [text for text in texts if names_in([text.encode()], needles)] == []
    assert names_in([b'my-secret-1 1234567890 a"b\\c"d'], needles) == {"A", "PIN", "C"}


def test_settings_that_are_called_like_secrets_are_none():
    environ = {
        "MAX_TOKENS": "131072",
        "SDPA_AUTH": "disabled",
        "POSTGRES_PASSWORD": "postgres",
        "LONG_KEY": "1234567890",
    }

    assert Rules().secrets_of(environ) == {"LONG_KEY": ("1234567890",)}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("wrote the token ghp_0123456789", "wrote the token [KEY withheld]"),
        ("wrote 'ghp_0123456789'", "wrote '[KEY withheld]'"),
        ("6789abcdef was refused", "[KEY withheld] was refused"),
        ("ghp_012 is too short to tell", "ghp_012 is too short to tell"),
    ],
)
def test_of_a_value_in_a_text_that_was_cut_the_rest_goes_too(text, clean):
    assert redact(text, needles_of({"KEY": "ghp_0123456789abcdef"})) == clean


@given(cut=st.integers(0, 40))
def test_a_value_is_found_wherever_blocks_are_cut(cut):
    text = b"." * 12 + SECRET.encode() + b"." * 12

    assert names_in([text[:cut], text[cut:]], NEEDLES) == {"PASSWORD"}
    assert names_in((bytes([byte]) for byte in text), NEEDLES) == {"PASSWORD"}
    assert names_in((bytes([byte]) for byte in quote(SECRET).encode()), NEEDLES) == {"PASSWORD"}


def test_secrets_go_by_many_names_and_the_folder_of_a_shell_by_none():
    secret = ["DB_CREDS", "SSHKEY", "KUBECONFIG_DATA", "AZURE_SAS", "BLOB_SAS_URL", "KUBECONFIG"]
    secret += ["GCP_SA_JSON", "SSH_KEY_B64", "DBPASS", "PGPASS", "APP_PW", "DOCKERCONFIGJSON", "TLS_CERT"]
    secret += ["SIGNING_P12_BASE64", "PAT", "GH_PAT_2", "GCP_SERVICE_ACCOUNT", "DB_CONN_STR", "NPM_TKN"]
    secret += ["DEPLOY_KEYS", "GPGKEY1", "DB_PASS", "MYSQL_PWD", "SSHPASS", "JWT", "SLACK_WEBHOOK_URL"]
    secret += ["SENTRY_DSN", "AZURE_CONNECTION_STRING", "GCP_SA"]
    known = ["PWD", "OLDPWD", "TRITON_PASS_PLUGIN_PATH", "COMPASS", "PASSES", "CUDA_BYPASS", "DSNAME"]
    known += ["SSL_CERT_FILE", "SSL_CERT_DIR", "KEYBOARD", "SASL", "PATH", "PATTERN", "CREDIT", "SALTED"]
    known += ["OPTION"]

    assert [name for name in secret + known if is_secret_name(name)] == secret


TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("value", "secrets"),
    [
        (f"https://{TOKEN}@github.com/org/repo", (TOKEN,)),
        (f"AKCp8{TOKEN}", (f"AKCp8{TOKEN}",)),
        (f"https://hooks.slack.com/services/T0/B0/{TOKEN}", (f"hooks.slack.com/services/T0/B0/{TOKEN}",)),
        (f"https://{TOKEN}:@host https://me:{TOKEN[::-1]}@host", (TOKEN, TOKEN[::-1])),
        (f"https://{TOKEN}:x-oauth-basic@github.com", (TOKEN,)),
        (f"https://x-access-token:{TOKEN}@github.com", (TOKEN,)),
        ("postgres://me:p%40ss%2Fword@host/db", ("p%40ss%2Fword", "p@ss/word")),
        ("postgres://me:p@ssword@host/db", ("p@ssword",)),
        (f"https://store.blob.core.windows.net/c?sv=2024&sig={TOKEN}%3D&sp=r", (f"{TOKEN}%3D", f"{TOKEN}=")),
        (f"DefaultEndpointsProtocol=https;AccountKey={TOKEN}==;EndpointSuffix=x", (f"{TOKEN}==",)),
        *((f"--with {begin}{TOKEN}", (f"{begin}{TOKEN}",)) for begin in ("ghs_", "glpat-", "hf_", "nvapi-", "pypi-")),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc", ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc",)),
    ],
)
def test_a_secret_is_known_by_its_value_whatever_its_variable_is_called(value, secrets):
    environ = {"PLAIN": value, "CI_PERF_SETUP": value}

    assert Rules().secrets_of(environ) == {"PLAIN": secrets, "CI_PERF_SETUP": secrets}
    assert Rules().for_workers(environ) == {}


@pytest.mark.parametrize(
    "value", ["https://host/@scope/package", "https://host:8080/a", "me@host", "ghp_short", "a-sk-b"]
)
def test_a_value_without_a_secret_reaches_kernels(value):
    assert Rules().secrets_of({"PLAIN": value}) == {}
    assert Rules().for_workers({"PLAIN": value}) == {"PLAIN": value}


def test_the_path_of_a_certificate_is_no_secret_and_a_certificate_is_one():
    path, inside = {"PIP_CERT": "/etc/ssl/ca-bundle.pem"}, {"PIP_CERT": "MIIEvQIBADANBgkq"}

    assert (Rules().secrets_of(path), Rules().for_workers(path)) == ({}, path)
    assert (Rules().secrets_of(inside), Rules().for_workers(inside)) == ({"PIP_CERT": ("MIIEvQIBADANBgkq",)}, {})


def test_a_user_in_a_url_reaches_no_kernel():
    """Whether it is a name or a token cannot be told from it."""
    assert Rules().for_workers({"URL": "git+ssh://git@host/repo"}) == {}


def test_what_holds_no_secret_is_not_searched_for():
    environ = {"GIT_AUTHOR_NAME": "Ada Lovelace", "SSH_AUTH_SOCK": "/tmp/agent.1", "INPUT_KERNELS": "sdpa/s512"}

    assert Rules().secrets_of(environ | {"CI_PERF_COMMENT_KEY": "default", "API_KEY": "short"}) == {}


def test_a_profiler_gets_what_a_gpu_program_needs_and_a_worker_all_but_secrets():
    environ = {"CUDA_VISIBLE_DEVICES": "0", "LC_ALL": "C", "CI_PERF_CACHE": "/c", "MINE": "1", "GH_TOKEN": "ghp_123456"}

    for_profilers = set(Rules().for_profilers(environ))

    assert for_profilers == {"CUDA_VISIBLE_DEVICES", "LC_ALL", "CI_PERF_CACHE"}
    assert set(Rules().for_workers(environ)) == for_profilers | {"MINE"}
    assert set(Rules(passed=("GH_*",)).for_profilers(environ)) == for_profilers | {"GH_TOKEN"}


def test_a_variable_that_is_withheld_reaches_no_kernel_and_its_value_is_searched_for():
    rules, environ = (
        Rules(passed=("*",), withheld=("CUDA_HIDDEN", "MY_*")),
        {"MY_PLACE": "somewhere", "CUDA_HIDDEN": "1"},
    )

    assert rules.for_workers(environ) == rules.for_profilers(environ) == {}
    assert rules.secrets_of(environ) == {"MY_PLACE": ("somewhere",)}


def test_no_kernel_gets_the_files_by_which_a_step_controls_its_job():
    environ = dict.fromkeys((*FILES_OF_A_JOB, "GITHUB_SHA"), "/files")

    assert Rules(passed=("GITHUB_*",)).for_workers(environ) == {"GITHUB_SHA": "/files"}
    assert Rules(passed=("GITHUB_*",)).for_profilers(environ) == {"GITHUB_SHA": "/files"}


def test_a_run_is_redacted_and_still_a_run():
    failure = Failure("verify", "raised", f"no login with {SECRET}", base64.b64encode(SECRET.encode()).decode())
    run = a_run(a_measurement(failure=failure), notes=(Note("x", quote(SECRET, safe="")),))
    clean = redact_run(run, NEEDLES)

    assert clean.measurements[0].failure.message == "no login with [PASSWORD withheld]"
    assert "[PASSWORD withheld]" in clean.measurements[0].failure.detail
    assert clean.notes[0].message == "[PASSWORD withheld]"
    assert redact_run(clean, NEEDLES) == clean


def test_a_secret_that_is_a_word_of_ci_perf_does_not_break_the_run():
    run = a_run()

    assert redact_run(run, needles_of({"TOKEN": "launch", "KEY": "cuda-graph"})).measurements == run.measurements


def test_a_text_with_an_archive_that_holds_a_secret_is_redacted():
    packed = base64.b64encode(gzip.compress(HIDDEN)).decode()

    assert redact({"message": f"my data: {packed}"}, NEEDLES) == {"message": "[PASSWORD withheld]"}
    assert redact({"message": "my data: H4sIAAAA"}, NEEDLES) == {"message": "my data: H4sIAAAA"}


def test_of_two_secrets_that_begin_alike_the_longer_one_is_named():
    assert redact("abcdef123", needles_of({"A": "abcdef", "B": "abcdef123"})) == "[B withheld]"


def test_the_environment_that_others_can_read_is_blanked_and_our_own_is_not():
    code = """
import os, subprocess
from ci_perf.guard.secrets import looks_secret
from ci_perf.guard import own_environment

print(own_environment.hide(looks_secret), os.environ["MY_TOKEN"], os.environ["PLAIN"])
print(open("/proc/self/environ").read())
print(subprocess.run(["env"], stdout=subprocess.PIPE, text=True).stdout)
"""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "MY_TOKEN": SECRET, "PLAIN": "public"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    first, *others = done.stdout.splitlines()

    assert first == f"1 {SECRET} public"
    assert SECRET not in "".join(others)
    assert done.stdout.count("PLAIN=public") == 2


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def guard(tmp_path):
    (tmp_path / "run/logs").mkdir(parents=True)
    guard = Guard(tmp_path / "run", NEEDLES)
    guard.open()
    return guard


HIDDEN = b"x" * 100 + SECRET.encode()


def in_zip(content, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(buffer := io.BytesIO(), "w", method) as file:
        file.writestr("before.txt", "y" * 100)
        file.writestr("inside", content)
    return buffer.getvalue()


def in_tar(content, mode="w"):
    with tarfile.open(fileobj=(buffer := io.BytesIO()), mode=mode) as file:
        member = tarfile.TarInfo("inside")
        member.size = len(content)
        file.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


PACKED = {
    "zip": in_zip(HIDDEN),
    "zip with LZMA": in_zip(HIDDEN, zipfile.ZIP_LZMA),
    "zip in zip": in_zip(in_zip(HIDDEN)),
    "zip in gzip in zip": in_zip(gzip.compress(in_zip(HIDDEN))),
    "second member of gzip": gzip.compress(b"first") + gzip.compress(HIDDEN),
    "gzip in gzip": gzip.compress(gzip.compress(HIDDEN)),
    "gzip in tar": in_tar(gzip.compress(HIDDEN)),
    **{f"zip in tar.{method}": in_tar(in_zip(HIDDEN), f"w:{method}") for method in ("gz", "bz2", "xz")},
    "first member of bzip2": bz2.compress(HIDDEN) + bz2.compress(b"more"),
    "xz": lzma.compress(HIDDEN),
    "zip behind a program": b"#!/bin/sh\n" + in_zip(HIDDEN),
    "gzip in base64": base64.b64encode(gzip.compress(HIDDEN)),
    "gzip in base64 in a log": b"log: " + base64.encodebytes(gzip.compress(HIDDEN)).replace(b"\n", b"\n  ") + b"\nend.",
    "xz in base64 for URLs": b"x=" + base64.urlsafe_b64encode(lzma.compress(HIDDEN)) + b"&y=1",
    "gzip in hexadecimal": b"dump: " + gzip.compress(HIDDEN).hex().upper().encode() + b" end",
    "bzip2 in base64 in gzip": gzip.compress(b"x" * (1 << 20) + base64.b64encode(bz2.compress(HIDDEN))),
    "gzip in base64 over two blocks": b"\0" * ((1 << 20) - 2) + base64.b64encode(gzip.compress(HIDDEN)),
    "zip in base64 behind what only begins like one": b"H4sIH4sI!UEsDBH4sI " + base64.b64encode(in_zip(HIDDEN)),
    "gzip of several blocks": gzip.compress(b"x" * (1 << 23) + HIDDEN),
}


@pytest.mark.parametrize("packed", PACKED)
def test_a_secret_is_found_however_deep_it_is_packed(tmp_path, packed):
    (tmp_path / "file").write_bytes(PACKED[packed])

    assert SECRET.encode() not in PACKED[packed]
    assert names_in_file(tmp_path / "file", NEEDLES) == ("PASSWORD",)


def encrypted():
    content = bytearray(in_zip(HIDDEN))
    for record, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = content.find(record)
        while at >= 0:
            content[at + flags] |= 1
            at = content.find(record, at + 1)
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x28\xb5\x2f\xfd....", "is packed by zstd"),
        (in_zip(b"\x28\xb5\x2f\xfd...."), "is packed by zstd"),
        (encrypted(), "holds an encrypted file"),
        (functools.reduce(lambda packed, _: gzip.compress(packed), range(9), b"x" * 99), "is packed more than 8 times"),
    ],
    ids=["zstd", "zstd in zip", "encrypted zip", "nine times"],
)
def test_what_nobody_here_can_unpack_is_withheld(guard, content, what):
    (guard.folder / "file").write_bytes(content)
    (note,) = guard.sweep()

    assert note.message == f"file was withheld: it cannot be searched: it {what}; it is in run.withheld/ on the machine"
    assert not (guard.folder / "file").exists()


def test_a_file_is_unpacked_up_to_a_limit_and_withheld_beyond_it(guard, monkeypatch):
    monkeypatch.setattr(unpack, "_MOST_UNPACKED", 1 << 20)
    (guard.folder / "bomb.gz").write_bytes(gzip.compress(bytes(1 << 21)))
    (note,) = guard.sweep()

    assert "bomb.gz was withheld: it cannot be searched: it holds more than 0 GiB" in note.message


def over_two_pages(folder):
    """Return a database in whose bytes the page border cuts the secret: where it lies, SQLite alone knows."""
    for before in range(800, 840, 4):
        path = folder / f"{before}.sqlite"
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("PRAGMA page_size = 4096")
            database.execute('CREATE TABLE [a "table"] (value TEXT)')
            database.execute('INSERT INTO [a "table"] VALUES (?)', ("x" * before + SECRET + "x" * (9000 - before),))
        if SECRET.encode() not in path.read_bytes():
            return path
    raise AssertionError("SQLite cuts texts elsewhere by now")


def test_a_value_that_lies_over_two_pages_of_a_database_is_found(tmp_path):
    assert names_in_file(over_two_pages(tmp_path), NEEDLES) == ("PASSWORD",)


def zipped(path):
    path.write_bytes(in_zip(HIDDEN))


def gzipped(path):
    path.write_bytes(gzip.compress(HIDDEN))


def plain(path):
    path.write_bytes(b"\0" * (1 << 22) + SECRET.encode())


def cut_off(path):
    gzipped(path)
    path.write_bytes(path.read_bytes()[:-4])


@pytest.mark.parametrize("write", [zipped, gzipped, plain, cut_off])
def test_a_file_with_a_secret_leaves_the_folder_and_the_note_names_file_and_variable(guard, write):
    write(guard.folder / "logs/some.file")
    (note,) = guard.sweep()

    assert list((guard.folder / "logs").iterdir()) == []
    assert (guard.outside / "logs-some.file").is_file()
    assert note.message.startswith("logs/some.file was withheld: it holds the value of PASSWORD;")
    assert SECRET not in repr(note)
    guard.close()
    assert guard.outside.is_dir()


def test_a_link_leaves_the_folder_and_what_it_led_to_stays(tmp_path):
    (tmp_path / "key").write_text(SECRET)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "report.md").symlink_to(tmp_path / "key")
    (note,) = Guard(folder, NEEDLES).sweep()

    assert (note.code, list(folder.iterdir())) == ("link-removed", [])
    assert (tmp_path / "key").read_text() == SECRET


def test_a_name_that_is_a_secret_is_one_too(guard):
    guard = Guard(guard.folder, needles_of({"KEY": "abcdefgh"}))
    (guard.folder / "abcdefgh.txt").write_text("")
    (guard.folder / "x=abcdefgh").mkdir()
    (guard.folder / "x=abcdefgh/b.txt").write_text("")
    (guard.folder / "abcdefgh.link").symlink_to("nowhere")
    notes = guard.sweep()

    assert [path for path in guard.folder.rglob("*") if path.is_file() or path.is_symlink()] == []
    assert [note.message.split(" was ")[0] for note in notes] == [
        "[KEY withheld].link: a link",
        "[KEY withheld].txt",
        "x=[KEY withheld]/b.txt",
    ]
    assert "abcdefgh" not in repr(notes)


def test_a_file_that_cannot_be_read_and_one_with_a_long_name_are_withheld_too(guard, monkeypatch):
    deep = guard.folder / ("a" * 150) / ("b" * 150)
    deep.mkdir(parents=True)
    (deep / "c.txt").write_text(SECRET)
    (guard.folder / "locked.txt").write_text("")
    real = Path.open

    def refuse(path, *arguments, **more):
        if path.name == "locked.txt":  # root may read what nobody may
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *arguments, **more)

    monkeypatch.setattr(Path, "open", refuse)
    long, locked = guard.sweep()

    assert "it holds the value of PASSWORD" in long.message
    assert locked.message.startswith("locked.txt was withheld: it cannot be searched: permission denied;")
    assert [path for path in guard.folder.rglob("*") if path.is_file()] == []


def test_only_a_file_that_ci_perf_writes_is_admitted(guard):
    (guard.outside / "notes.txt").write_text("clean")
    (note,) = guard.admit(guard.outside / "notes.txt")

    assert note.message.startswith("notes.txt was withheld: ci-perf writes no file of this name;")
    assert list(guard.folder.rglob("*.txt")) == []


def test_a_clean_file_is_admitted_and_the_empty_folder_outside_removed(guard):
    (guard.outside / "timeline.sqlite").write_text("clean")

    assert guard.admit(guard.outside / "timeline.sqlite") == ()
    assert (guard.folder / "timeline.sqlite").read_text() == "clean"
    guard.close()
    assert not guard.outside.exists()


def test_a_damaged_archive_is_searched_as_it_is(tmp_path):
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04" + SECRET.encode())
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8bnothing")

    assert names_in_file(tmp_path / "bad.zip", NEEDLES) == ("PASSWORD",)
    assert names_in_file(tmp_path / "bad.gz", NEEDLES) == ()


def test_a_recorded_environment_is_recognised_without_knowing_its_secrets(tmp_path):
    (tmp_path / "report").write_bytes(b"\1\2PATH=/usr/bin\0HF_TOKEN=hf_0123456789\0EMPTY_TOKEN=\0")

    assert variables_in_file(tmp_path / "report") == ("HF_TOKEN",)


def test_it_is_recognised_as_nsys_writes_it_and_a_clean_report_has_none(tmp_path):
    fields = b"\xf2\1\x1e\n\x08HF_TOKEN\x12\x0dhf_0123456789\xf2\1\x0e\n\x04TERM\x12\x05xterm\n\x05A_KEY\x12\x02ab"
    (tmp_path / "a.nsys-rep").write_bytes(fields)

    assert variables_in_file(tmp_path / "a.nsys-rep") == ("HF_TOKEN",)


@pytest.mark.parametrize("path", [p.values[0] for p in (*files("ncu-rep"), *files("nsys-rep"))], ids=str)
def test_in_reports_without_secrets_none_is_recognised(path):
    assert variables_in_file(path) == ()


# --- exports ---------------------------------------------------------------------------------------------------------


def an_export(path):
    """Write a database with a secret in every place in which nsys keeps environments, and in freed pages."""
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(
            """
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT NOT NULL, value TEXT NOT NULL);
            CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);
            CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
            CREATE TABLE NEW_PROCESS_ENVIRONMENT (value TEXT);
            CREATE TABLE Freed (value TEXT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
                correlationId INTEGER, shortName INTEGER NOT NULL -- REFERENCES StringIds(id) -- Base name
            );
            INSERT INTO StringIds VALUES (1, 'softmax'), (2, 'not used');
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 5, 0, 1, 1);
            INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.20.3'), ('EXPORT_USER', 'ada');
            INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('CpuCores', '8');
            """
        )
        database.execute("INSERT INTO StringIds VALUES (3, ?)", (SECRET,))
        for table in ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE", "META_DATA_EXPORT"):
            database.execute(f"INSERT INTO {table} VALUES ('Environment', ?)", (SECRET,))
        database.execute("INSERT INTO NEW_PROCESS_ENVIRONMENT VALUES (?)", (SECRET,))
        database.execute("INSERT INTO Freed VALUES (?)", (SECRET * 2000,))
        database.commit()
        database.execute("DELETE FROM Freed")
    return path


def test_an_export_is_cleaned_down_to_its_freed_pages(tmp_path):
    source, clean = an_export(tmp_path / "raw.sqlite"), tmp_path / "clean.sqlite"
    before = source.read_bytes()
    removed = nsys_scrub.clean(source, clean)

    assert names_in_file(source, NEEDLES) == ("PASSWORD",)
    assert names_in_file(clean, NEEDLES) == ()
    assert b"ada" not in clean.read_bytes()
    assert nsys.read_timeline(clean) == nsys.read_timeline(source)
    assert source.read_bytes() == before
    assert sorted(removed) == [
        "META_DATA_CAPTURE: 1 rows",
        "META_DATA_EXPORT: 2 rows",
        "NEW_PROCESS_ENVIRONMENT: 1 rows",
        "StringIds: 2 strings that nothing refers to",
        "TARGET_INFO_SYSTEM_ENV: 1 rows",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean.sqlite", "raw.sqlite"]


def test_an_unknown_table_keeps_only_numbers_and_the_strings_of_events(tmp_path):
    source, clean = an_export(tmp_path / "raw.sqlite"), tmp_path / "clean.sqlite"
    with closing(sqlite3.connect(source)) as database, database:
        database.executescript(
            """
            CREATE TABLE [Job "notes"] (id INTEGER, text TEXT, image BLOB, size INTEGER NOT NULL);
            CREATE TABLE TARGET_INFO_COMMAND_LINES (argv TEXT PRIMARY KEY NOT NULL);
            CREATE TABLE Launched (nameId INTEGER REFERENCES StringIds(id));
            CREATE TABLE TENSOR_CORE_EVENTS (start INTEGER, nameId INTEGER REFERENCES StringIds(id), note TEXT);
            CREATE TABLE CUDA_NEW_EVENTS (start INTEGER, name TEXT);
            CREATE TRIGGER t AFTER UPDATE ON [Job "notes"]
                BEGIN INSERT INTO CUDA_NEW_EVENTS VALUES (1, old.text); END;
            INSERT INTO StringIds VALUES (4, 'wgmma'), (5, 'nccl');
            INSERT INTO TENSOR_CORE_EVENTS VALUES (7, 4, 'seen');
            INSERT INTO CUDA_NEW_EVENTS VALUES (8, 'tma');
            INSERT INTO Launched VALUES (3), (5);
            """
        )
        database.execute('INSERT INTO [Job "notes"] VALUES (1, ?, ?, 5)', (SECRET, SECRET.encode()))
        database.executemany("INSERT INTO TARGET_INFO_COMMAND_LINES VALUES (?)", [(SECRET,), ("train",)])
    removed = nsys_scrub.clean(source, clean)

    assert names_in_file(clean, NEEDLES) == ()
    assert [line for line in removed if "not known" in line] == [
        'Job "notes": 2 texts, of a table that nsys is not known to write',
        "TARGET_INFO_COMMAND_LINES: 2 texts, of a table that nsys is not known to write",
        "TENSOR_CORE_EVENTS: 1 texts, of a table that nsys is not known to write",
    ]
    with closing(sqlite3.connect(clean)) as database:
        assert database.execute('SELECT * FROM [Job "notes"]').fetchall() == [(1, "", "", 5)]
        assert database.execute("SELECT * FROM TENSOR_CORE_EVENTS").fetchall() == [(7, 4, "")]
        assert database.execute("SELECT * FROM CUDA_NEW_EVENTS").fetchall() == [(8, "tma")]
        assert database.execute("SELECT value FROM StringIds ORDER BY id").fetchall() == [("softmax",), ("wgmma",)]


@pytest.mark.parametrize("path", [p.values[0] for p in files("nsys-sqlite")], ids=str)
def test_of_no_export_that_nsys_wrote_a_table_is_unknown(path, tmp_path):
    assert [line for line in nsys_scrub.clean(path, tmp_path / "clean.sqlite") if "not known" in line] == []


@pytest.mark.parametrize(
    "path", [CAPTURES / "h200-nsys-2025.3.2-torch.sqlite", *(p.values[0] for p in files("nsys-sqlite"))], ids=str
)
def test_a_cleaned_export_of_any_version_is_the_same_trace(path, tmp_path):
    def outcome(file):
        try:
            timeline = nsys.read_timeline(file)
        except Exception as error:
            return type(error)
        return timeline, [timeline.inside([name]) for name in list(timeline.ranges)[:50]]

    nsys_scrub.clean(path, tmp_path / "clean.sqlite")

    assert outcome(tmp_path / "clean.sqlite") == outcome(path)


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_PASSWORD", SECRET)
    return tmp_path


def scrub(*arguments):
    return CliRunner().invoke(program, ["scrub", *arguments])


def test_scrub_writes_a_clean_copy_beside_a_database(here):
    an_export(here / "a.sqlite")
    done = scrub("a.sqlite")

    assert done.exit_code == 0
    assert "a.sqlite: removed META_DATA_CAPTURE: 1 rows\n" in done.stdout
    assert done.stdout.endswith("a.sqlite: no secret found, written to a.scrubbed.sqlite\n")
    assert names_in_file(here / "a.scrubbed.sqlite", NEEDLES) == ()


def test_scrub_deletes_a_copy_whose_trace_itself_holds_a_secret(here):
    with closing(sqlite3.connect(an_export(here / "a.sqlite"))) as database, database:
        database.execute("UPDATE StringIds SET value = ? WHERE id = 1", (SECRET,))
    done = scrub("a.sqlite", "-o", "b.sqlite")

    assert done.exit_code == 1
    assert "a.sqlite: HOLDS THE VALUE OF MY_PASSWORD\n" in done.stdout
    assert SECRET not in done.output
    assert not (here / "b.sqlite").exists()


def test_scrub_copies_other_files_only_if_they_are_clean(here):
    (here / "out").mkdir()
    (here / "clean.log").write_text("nothing here")
    (here / "leaky.log").write_text(quote(SECRET, safe=""))
    (here / "env.nsys-rep").write_bytes(b"\0OTHER_TOKEN=abcdefgh\0")
    done = scrub("clean.log", "leaky.log", "env.nsys-rep", "-o", "out")

    assert done.exit_code == 1
    assert [path.name for path in (here / "out").iterdir()] == ["clean.log"]
    assert "env.nsys-rep: holds the variables OTHER_TOKEN" in done.stdout


def test_scrub_searches_for_the_variable_that_is_named(here, monkeypatch):
    monkeypatch.setenv("PLAIN", "chartreuse")
    (here / "a.log").write_text("chartreuse")

    assert scrub("a.log").exit_code == 0
    assert scrub("a.log", "--value-from-env", "PLAIN").exit_code == 1
    assert "the environment has no such variable" in scrub("a.log", "--value-from-env", "GONE").stderr


def test_scrub_never_writes_over_its_own_input(here):
    an_export(here / "a.sqlite")
    several = scrub("a.sqlite", "a.sqlite", "-o", "b")

    assert "would be written over" in scrub("a.sqlite", "-o", "a.sqlite").stderr
    assert (several.exit_code, several.stderr.split("\n")[0]) == (2, "error: b: is not a folder, and there are 2 files")
