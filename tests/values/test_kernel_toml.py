import re
from pathlib import Path

import pytest

from ci_perf.values.errors import ConfigError
from ci_perf.values.kernel import Gate, Program, command_line
from ci_perf.values.kernel_toml import parse_fraction, parse_kernel

MINIMAL = """
entry = "kernel.py"
[cases.small]
seq = 128
"""


def parse(text, name="sdpa"):
    return parse_kernel(text, name=name, folder=f"kernels/{name}")


def test_a_minimal_file_leaves_the_rest_to_defaults():
    spec = parse(MINIMAL)

    assert (spec.name, spec.folder, spec.entry) == ("sdpa", "kernels/sdpa", "kernel.py")
    assert spec.cases == {"small": {"seq": 128}}
    assert (spec.devices, spec.l2, spec.kernels, spec.cpu_cases) == (("cuda",), "warm", (), None)
    assert spec.time == "gpu"
    assert parse('time = "wall"' + MINIMAL).time == "wall"
    assert (spec.regression, spec.speedup, spec.timeout_s, spec.gates) == (None, None, None, ())


def test_a_full_file_is_read_key_by_key():
    spec = parse("""
        entry = "kernel.py"
        description = "attention"
        devices = ["cuda", "cpu"]
        kernels = ["flash", "sdpa"]
        l2 = "cold"
        cpu_cases = ["small"]
        [defaults]
        heads = 8
        causal = false
        [cases.small]
        seq = 128
        [cases.masked]
        seq = 128
        causal = true
        [tolerance]
        float16 = 1e-2
        [policy]
        regression = "5%"
        speedup = 0.2
        timeout = 30
        [gates]
        sm_throughput_pct = ">= 85"
        l1_miss_rate_pct = " <=1.5e1 "
    """)

    assert spec.cases == {
        "small": {"heads": 8, "causal": False, "seq": 128},
        "masked": {"heads": 8, "causal": True, "seq": 128},
    }
    assert (spec.description, spec.l2, spec.cpu_cases) == ("attention", "cold", ("small",))
    assert (spec.devices, spec.kernels) == (("cuda", "cpu"), ("flash", "sdpa"))
    assert (spec.tolerance, spec.regression, spec.speedup, spec.timeout_s) == ({"float16": 0.01}, 0.05, 0.2, 30)
    assert spec.gates == (Gate("sm_throughput_pct", ">=", 85.0), Gate("l1_miss_rate_pct", "<=", 15.0))


def test_a_sweep_is_the_product_of_its_lists_named_by_its_values():
    cases = parse(MINIMAL + '[sweep]\nseq = [256, 512]\ndtype = ["float16", "TF32 x3"]').cases

    assert list(cases) == [
        "small",
        "seq256-dtypefloat16",
        "seq256-dtypetf32-x3",
        "seq512-dtypefloat16",
        "seq512-dtypetf32-x3",
    ]
    assert cases["seq512-dtypetf32-x3"] == {"seq": 512, "dtype": "TF32 x3"}


def test_a_sweep_takes_what_it_does_not_sweep_from_the_defaults_or_else_from_the_first_case():
    first = 'entry = "kernel.py"\n[cases.a]\nseq = 1\nheads = 8\n[cases.b]\nseq = 2\nheads = 4\n[sweep]\nseq = [3]\n'

    assert parse(first).cases["seq3"] == {"seq": 3, "heads": 8}
    assert parse(first + "[defaults]\nheads = 16").cases["seq3"] == {"seq": 3, "heads": 16}


def _sweep(*sizes):
    return "[sweep]\n" + "".join(f"{'abc'[place]} = {[*range(size)]}\n" for place, size in enumerate(sizes))


def test_a_sweep_may_make_ten_thousand_cases():
    assert len(parse(MINIMAL + _sweep(100, 100)).cases) == 10_001


def test_a_byte_order_mark_is_read():
    assert parse("\ufeff" + MINIMAL) == parse(MINIMAL)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("entry = ", "Invalid value (at end of document)", ""),
        (MINIMAL + "[cases.small]\nseq = 256", "Cannot declare ('cases', 'small') twice", "only once"),
        (MINIMAL + "[cases.big]\nseq = 1\nseq = 2", "Cannot overwrite a value", "only once"),
        (MINIMAL + "[sweeps]\nseq = [1]", "unknown key `sweeps`", "sweep"),
        (MINIMAL + "[policy]\nregresion = '3%'", "key `policy`: unknown key `regresion`", "regression"),
        ("[cases.small]\nseq = 128", "`entry` is missing but required", ""),
        ('entry = "kernel.py"', "`cases` is missing but required", ""),
        (
            'entry = "../kernel.py"\n[cases.a]',
            "key `entry`: '../kernel.py' does not have the expected form",
            "beside kernel.toml",
        ),
        ('entry = "kernel.py"\n[cases]', "key `cases`: {} should be non-empty", "table of parameters"),
        ('entry = "kernel.py"\n[cases.Big]', "key `cases`: 'Big' does not have the expected form", ""),
        ("kernels = 'flash'" + MINIMAL, "key `kernels`: 'flash' is not of type array", "fnmatch"),
        ("l2 = 'cold'\ntime = 'wall'" + MINIMAL, 'key `time`: "wall" cannot be combined with l2', "flush"),
        ("l2 = 'hot'" + MINIMAL, "key `l2`: 'hot' is not one of ['warm', 'cold']", "L2 cache"),
        ("devices = ['gpu']" + MINIMAL, "key `devices[0]`: 'gpu' is not one of ['cpu', 'cuda']", ""),
        (MINIMAL + "dim = [1, 2]", "key `cases.small.dim`: [1, 2] is not of type string or integer", ""),
        (MINIMAL + "day = 2026-11-27", "key `cases.small.day`: datetime.date(2026, 11, 27) is not of type", ""),
        (MINIMAL + "scale = nan", "`nan` is not a finite number", "JSON"),
        (MINIMAL + "scale = " + 5000 * "1", "a whole number has too many digits", ""),
        (MINIMAL + "scale = " + 100_000 * "[", "nested too deeply", ""),
        (MINIMAL + "[tolerance]\nfloat16 = inf", "`inf` is not a finite number", "JSON"),
        (MINIMAL + "[tolerance]\nfloat16 = -1", "key `tolerance.float16`: -1 is less than the minimum", ""),
        (MINIMAL + "[cases.twin]\nseq = 128", "key `cases.twin`: the same parameters as case `small`", "remove one"),
        (MINIMAL + "[sweep]\nseq = [128]", "key `sweep.seq128`: the same parameters as case `small`", "remove one"),
        (MINIMAL + "[sweep]\nseq = [1, 1]", "key `sweep`: case `seq1` repeats", "drop the value"),
        (MINIMAL + "[cases.seq1]\nseq = 2\n[sweep]\nseq = [1]", "key `sweep`: case `seq1` repeats", "rename the case"),
        (MINIMAL + _sweep(10_001), "key `sweep`: 10,001 cases, more than 10,000", "drop values"),
        (MINIMAL + _sweep(300, 300, 300), "key `sweep`: 27,000,000 cases, more than 10,000", "drop values"),
        (MINIMAL + "[sweep]\nseq = []", "key `sweep.seq`: [] should be non-empty", ""),
        ("cpu_cases = ['smal']" + MINIMAL, "key `cpu_cases`: no case is called `smal`", "did you mean small?"),
        (MINIMAL + "[policy]\nregression = 3", "key `policy.regression`: 3 is not between 0 and 1", "did you mean 3%?"),
        (MINIMAL + "[policy]\nspeedup = '-3%'", "key `policy.speedup`: '-3%' is not between 0 and 1", "write 3%"),
        (MINIMAL + "[policy]\nregression = 'few'", "key `policy.regression`: 'few' is not a fraction", "write 3%"),
        (MINIMAL + "[policy]\nregression = true", "key `policy.regression`: True is not of type string or number", ""),
        (MINIMAL + "[policy]\ntimeout = 0", "key `policy.timeout`: 0 is less than or equal to the minimum of 0", ""),
        (MINIMAL + "[gates]\nl1_mis_rate_pct = '<= 1'", "key `gates.l1_mis_rate_pct`: no counter", "l1_miss_rate_pct"),
        (MINIMAL + "[gates]\ncycles = '< 9'", "key `gates.cycles`: '< 9' does not have the expected form", ""),
        (
            MINIMAL + "[gates]\ncycles = '<= 1.2.3'",
            "key `gates.cycles`: '<= 1.2.3' does not have the expected form",
            "",
        ),
        (MINIMAL + "[gates]\ncycles = 9", "key `gates.cycles`: 9 is not of type string", ""),
    ],
)
def test_an_error_names_the_file_the_key_and_the_remedy(text, message, hint):
    with pytest.raises(ConfigError) as error:
        parse(text)

    assert str(error.value).startswith(f"kernels/sdpa/kernel.toml: {message}")
    assert hint in error.value.hint


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("seq = 128", "a table or key may be written only once"),
        ("dtype = float16", "quote the text"),
        ("dtype = \u201cfloat16\u201d", 'quote the text with "'),
        ("causal = True", "write `true` or `false`"),
        ("causal = None", "TOML has no null: leave the key out"),
        ("[cases large]", "write a dot between the names of a table: `[cases.large]`"),
        ("  [ cases\tlarge-2 ]  # as in a paper", "write a dot between the names of a table: `[cases.large-2]`"),
        ("[cases large", ""),
        ("[cases very large]", ""),
        ("dtype =", ""),
        ("dtype 16", ""),
        ("[policy]\nregression = 3", "a number without % must be below 1: did you mean 3%?"),
        ("[policy]\nregression = '99'", "a number without % must be below 1: did you mean 99%?"),
        ("[policy]\nregression = '100'", "a number without % must be below 1"),
        ("[policy]\nregression = '0'", "write 3% or 0.03"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_a_hint_is_given_only_where_it_is_the_remedy(line, hint, end):
    with pytest.raises(ConfigError) as error:
        parse(f"{MINIMAL}{line}\n".replace("\n", end))

    assert error.value.hint == hint


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dtype: 'float16'", "Expected '=' after a key in a key/value pair (at line 5, column 6): dtype: 'float16'"),
        ('name = "a\x1b[31m', "Illegal character '\\x1b' (at line 5, column 10): name = \"a[31m"),
        ("lengths = [1, 2", "Unclosed array (at end of document)"),
    ],
)
def test_the_error_for_a_file_that_is_not_toml_quotes_the_line(line, message):
    with pytest.raises(ConfigError) as error:
        parse(f"{MINIMAL}{line}\n")

    assert str(error.value) == f"kernels/sdpa/kernel.toml: {message}"


NVBENCH = 'nvbench = ["./bench", "--json", "{output}", "--axis", "N={n}"]\n[cases.a]\nn = 4\n'


def test_a_program_takes_the_place_of_the_entry():
    spec = parse('command = ["./bench", "--n={n}", "{folder}"]\nranges = ["step*"]\n[cases.a]\nn = 4\nfast = true')

    assert (spec.entry, spec.devices, spec.ranges) == ("", ("cpu", "cuda"), ("step*",))
    assert spec.program == Program("command", ("./bench", "--n={n}", "{folder}"))
    assert command_line(spec.program, spec.cases["a"], {"folder": "k"}) == ("./bench", "--n=4", "k")


def test_a_benchmark_says_which_number_it_is_and_what_its_file_does_not():
    keys = 'benchmark = "copy_{n}"\nmetric = "bandwidth"\nunit = "GB/s"\nbetter = "higher"\n'

    assert parse(keys + NVBENCH).program == Program(
        "nvbench",
        ("./bench", "--json", "{output}", "--axis", "N={n}"),
        benchmark="copy_{n}",
        metric="bandwidth",
        unit="GB/s",
        better="higher",
    )
    assert parse('devices = ["cuda"]\n' + NVBENCH).devices == ("cuda",)


TRITON = 'triton_csv = ["./bench", "{output}"]\n[cases.a]\n'


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "[cases.a]",
            "`entry` is missing but required, or a program in its place",
            "exactly one of `entry`, `command`",
        ),
        (
            'entry = "kernel.py"\ncommand = ["x"]\n[cases.a]',
            "keys `entry`, `command` exclude each other",
            "exactly one",
        ),
        ('command = "x"\n[cases.a]', "key `command`: 'x' is not of type array", "no shell"),
        ("command = []\n[cases.a]", "key `command`: [] should be non-empty", ""),
        ('command = ["x", "{m}"]\n[cases.a]\nn = 1', "key `command`: case `a` has no parameter `m`", "{n}, {folder}"),
        ('command = ["x", "{output}"]\n[cases.a]', "key `command`: case `a` has no parameter `output`", "{folder}"),
        (
            'command = ["x"]\n[cases.a]\noutput = 1',
            "key `cases.a.output`: {output} stands for the file",
            "something else",
        ),
        ('command = ["x"]\nunit = "s"\n[cases.a]', "key `unit`: cannot be combined with `command`", "`nvbench`"),
        ('command = ["x"]\nl2 = "cold"\n[cases.a]', "key `l2`: cannot be combined with `command`", "`entry`"),
        ("ranges = ['a']" + MINIMAL, "key `ranges`: cannot be combined with `entry`", "`command`"),
        ('time = "wall"\n' + NVBENCH, "key `time`: cannot be combined with `nvbench`", "`entry`, `command`"),
        ('kernels = ["a"]\n' + NVBENCH, "key `kernels`: cannot be combined with `nvbench`", "`entry`, `command`"),
        (NVBENCH.replace("{output}", "out"), "key `nvbench`: no argument holds {output}", "the file that the program"),
        ('command = ["x"]\nranges = ["{m}"]\n[cases.a]', "key `ranges`: case `a` has no parameter `m`", "no parameter"),
        ('benchmark = "{m}"\n' + NVBENCH, "key `benchmark`: case `a` has no parameter `m`", "known here: {n}"),
        ('unit = "furlong"\n' + NVBENCH, "key `unit`: 'furlong' is not known", "GB/s"),
        ('better = "more"\n' + NVBENCH, "key `better`: 'more' is not one of ['lower', 'higher']", ""),
        (TRITON, "`better` is missing but required: a CSV of Triton does not say it", 'unit = "GB/s"'),
        ('unit = "ms"\n' + TRITON, "`better` is missing but required: a CSV of Triton does not say it", "better"),
    ],
)
def test_an_error_in_a_program_names_the_file_the_key_and_the_remedy(text, message, hint):
    with pytest.raises(ConfigError) as error:
        parse(text)

    assert str(error.value).startswith(f"kernels/sdpa/kernel.toml: {message}")
    assert hint in error.value.hint


@pytest.mark.parametrize("name", ["", ".hidden", "a b", "-flag", "a/b", "naïve"])
def test_a_folder_whose_name_cannot_be_typed_is_refused(name):
    with pytest.raises(ConfigError, match="cannot be a kernel's name"):
        parse(MINIMAL, name=name)


@pytest.mark.parametrize(
    ("text", "fraction"), [("3%", 0.03), (" 10 % ", 0.1), ("150%", 1.5), ("2.9%", 0.029), (0.03, 0.03), ("0.25", 0.25)]
)
def test_a_threshold_is_a_percentage_or_a_fraction(text, fraction):
    assert parse_fraction(text, "regression") == fraction


@pytest.mark.parametrize("text", ["3", 3, 1, 0, "0%", "-1%", "nan", "inf", "inf%", "nan%", "", "%"])
def test_what_could_be_read_in_two_ways_or_none_is_no_threshold(text):
    with pytest.raises(ConfigError, match=r"^regression: "):
        parse_fraction(text, "regression")


def test_a_kernel_names_its_package_its_variables_and_the_failures_that_are_known(tmp_path):
    spec = parse(
        """
        entry = "kernel.py"
        [package]
        path = ["../../src"]
        imports = ["my_package"]
        [env]
        TRITON_CACHE_DIR = "{folder}/.triton"
        [expected_failures]
        "sm*" = "overflows: issue 12"
        [cases.small]
        seq = 128
        """
    )

    assert spec.path_in(tmp_path) == (f"{tmp_path}/src",)
    assert spec.package.imports == ("my_package",)
    assert spec.env_in(tmp_path) == {"TRITON_CACHE_DIR": f"{tmp_path}/kernels/sdpa/.triton"}
    assert (spec.expected_failure("small"), spec.expected_failure("large")) == ("overflows: issue 12", "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[package]\npath = ["/opt/src"]', "`package.path`: `/opt/src` is one folder for all commits"),
        ('[package]\nimports = ["../src"]', "package.imports"),
        ('[package]\nfolder = "src"', "package"),
        ('[env]\nA = "{here}"', "`env.A`: `{here}` is not known"),
        ('[env]\n"A B" = "1"', "env"),
        ("[env]\nA = 1", "env.A"),
        ('[expected_failures]\nlarge = "why"', "`expected_failures`: no case matches `large`"),
        ('[expected_failures]\nsmall = ""', "expected_failures.small"),
    ],
)
def test_what_cannot_be_meant_is_an_error_that_names_the_key(text, problem):
    with pytest.raises(ConfigError, match=re.escape(problem)):
        parse(MINIMAL + text)


def test_the_imports_of_a_program_are_not_known():
    with pytest.raises(ConfigError, match=r"`package.imports`: only the imports of an `entry` are known"):
        parse('command = ["./a"]\n[package]\nimports = ["b"]\n[cases.a]\n')


def test_a_tolerance_may_be_that_of_one_output_and_of_cases_with_some_parameters():
    spec = parse(
        MINIMAL
        + """
        [sweep]
        seq = [256, 512]
        [tolerance]
        float16 = 1e-2
        [tolerance.outputs.dw]
        float16 = 2e-2
        [[tolerance.when]]
        params = { seq = 256 }
        float16 = 3e-2
        float32 = 1e-4
        outputs.dw = { float16 = 4e-2 }
        """
    )

    assert spec.tolerances({"seq": 512}) == {"float16": 1e-2, "outputs": {"dw": {"float16": 2e-2}}}
    assert spec.tolerances({"seq": 256}) == {"float16": 3e-2, "float32": 1e-4, "outputs": {"dw": {"float16": 4e-2}}}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("float16 = -1", "tolerance.float16"),
        ("outputs = 1e-3", "tolerance.outputs"),
        ("outputs.dw = 1e-3", "tolerance.outputs.dw"),
        ("outputs.dw.float16 = -1", "tolerance.outputs.dw.float16"),
        ("[[tolerance.when]]\nfloat16 = 1", "tolerance.when[0]"),
        ("[[tolerance.when]]\nparams = { se = 128 }", "tolerance.when.params.se"),
        ("float23 = 1", "tolerance.float23"),
        ("outputs.dw.float23 = 1", "tolerance.outputs.dw.float23"),
    ],
)
def test_an_invalid_tolerance_is_an_error_that_names_the_key(text, key):
    with pytest.raises(ConfigError, match=f"`{re.escape(key)}`"):
        parse(MINIMAL + "[tolerance]\n" + text)


def test_a_tolerance_may_be_that_of_a_type_of_torch_or_of_the_dtype_of_a_case():
    text = 'entry = "kernel.py"\n[cases.a]\ndtype = "torch.half"\n'
    text += "[tolerance]\nhalf = 1e-2\nfloat8_e4m3fn = 0.1\nint32 = 1\n"
    assert parse(text).tolerance == {"half": 1e-2, "float8_e4m3fn": 0.1, "int32": 1}
    with pytest.raises(ConfigError) as error:
        parse(text + "float23 = 1e-5\n")
    assert error.value.hint.startswith("did you mean float32")


def test_the_examples_of_the_page_are_valid():
    page = (Path(__file__).parents[2] / ".github/docs/writing-kernels.md").read_text()
    examples = [block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[package]" in block]
    tables = [block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[expected_failures]" in block]

    (tolerances,) = [block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "tolerance.when" in block]
    spec = parse('entry = "kernel.py"\n[cases.a]\ncausal = true\n' + tolerances)
    assert spec.tolerances({"causal": True}) == {"float16": 2e-2, "outputs": {"dw": {"float16": 4e-2}}}
    assert parse(*examples).package.imports == ("my_package",)
    assert parse('entry = "kernel.py"\n[cases.s8192-h8]\n' + tables[0]).expected_failure("s8192-h8")
