"""Kernel names of every tool and version, brought to one form."""

import re
import sqlite3
import time
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_perf.traces.selection import counts
from ci_perf.values.kernel_names import collisions, compare, groups, matches, normalize
from tests import corpus


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(
            ("void build_GPU2<128, 4>(int*, int)", "void build_GPU2<(int)128, (int)4>(int *, int)"), id="casts, #41"
        ),
        pytest.param(("build<128, 4>(int*)", "void build<(int)128, (int)4>(int *)"), id="return-type, #41"),
        pytest.param(
            (
                "void <unnamed>::softmax<float, (bool)0>(T2 *)",
                "void (anonymous namespace)::softmax<float, false>(T2*)",
                "void {anonymous}::softmax<float,false>(T2*)",
                "void `anonymous namespace'::softmax<float,false>(T2 *)",
                "void unnamed>::softmax<float, (bool)0>(T2 *)",
                "void _GLOBAL__N__3bd4d9a0_4_k_cu_8c1f6d52::softmax<float, (bool)0>(T2 *)",
                "unnamed>::softmax<float, (bool)0>(T2 *)",
            ),
            id="anonymous-namespace, #41",
        ),
        pytest.param(
            (
                "f<std::array<char *, (unsigned long)3>, (ns::Kind)2>",
                "f<std::array<char*, 3ul>, 2>",
                "f<std::array<char*,3UL> , 2u>",
            ),
            id="suffixes",
        ),
        pytest.param(
            (
                "k<g(A &)::[lambda() (instance 2)]::operator ()() const::[lambda(float) (instance 1)]>(int, T3)",
                "k<g(A&)::{lambda()#2}::operator()() const::{lambda(float)#1}>(int, T3)",
            ),
            id="lambdas, #42",
        ),
        pytest.param(("f(const float *, unsigned long const &)", "f(float const*, const unsigned long&)"), id="const"),
        pytest.param(("f<A<B<int> > >", "f<A<B<int>>>"), id="brackets"),
        pytest.param(
            ("add_kernel_0d1d2d3d", "add_kernel_0d1d2de3", "add_kernel_0d1c2", "add_kernel"), id="triton, #43"
        ),
        pytest.param(
            ("mm_0d1d2d3d4d5d6d7c8d9c10d11c", "mm_01d23d4d5d67d8d9c10c11d"), id="triton with twelve parameters, #43"
        ),
        pytest.param(
            (
                "triton_poi_fused_add_relu_0",
                "triton_poi_fused_add_relu_12",
                "triton_poi_fused_add_relu_3_0d1d2",
                "triton_poi_fused_add_relu_9f3ab01c_3",
            ),
            id="torch.compile, #43",
        ),
        pytest.param(("triton__0d1d2", "triton_3"), id="early torch.compile, #43"),
        pytest.param(("jit_3f5a9c0d1e2b4a6f", "jit_aa00bb11cc22dd33"), id="hash, #43"),
        pytest.param(("cudapy::add[abi:v1,cw51cX](Array)", "cudapy::add[abi:v2,xyz](Array)"), id="numba, #42"),
    ],
)
def test_names_of_one_kernel_have_one_form(names):
    assert {normalize(name) for name in names} == {normalize(names[0])}


@pytest.mark.parametrize(
    "names",
    [
        ("gemm<128>", "gemm<64>"),
        ("f<true>", "f<false>"),
        ("f(int*)", "f(int)"),
        ("f(const int*)", "f(int*)"),
        ("conv2d", "conv3d"),
        ("kernel_0", "kernel_1"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x128_tn"),
        ("triton_poi_fused_add_0", "triton_red_fused_add_0"),
        ("triton_poi_fused_conv2", "triton_poi_fused_conv3"),
        ("k<{lambda()#1}>", "k<{lambda()#2}>"),
        ("unsigned_op<unsigned int>", "unsigned_op<int>"),
        ("reduce_0d", "reduce_1d"),
        ("reduce_0d", "reduce"),
        ("kernel_0c", "kernel_0d"),
        ("pad_0d1d", "pad_0d2d"),
        ("pad_0d1d", "pad"),
        ("blend_0d2d1d", "blend_0d1d3d"),
        ("reduce_0d1d2d(float*)", "reduce(float*)"),
        ("sum_0", "sum_01"),
    ],
)
def test_different_kernels_stay_apart(names):
    assert normalize(names[0]) != normalize(names[1])


PIECES = st.sampled_from([
    "void ", "<", ">", ">>", "::", "(int)", "(bool)", "1", "0", "128", "ul", " ", "*", "&", "const", " const", ",", "(",
    "<unnamed>", "unnamed>", "(anonymous namespace)", "_GLOBAL__N_x", "[lambda(int) (instance 1)]", "operator ()", ")",
    "_0d1d", "_0c", "triton_poi_fused_a", "_3", "_", "_deadbeef01", "[abi:v1]", "$3", "f", "float", "unsigned long",
    ", ",
])  # fmt: skip


@given(st.lists(PIECES, max_size=14).map("".join) | st.text(max_size=40))
def test_a_normal_form_is_its_own(name):
    assert normalize(normalize(name)) == normalize(name)
    assert normalize(f" {name} ") == normalize(name)


@given(st.lists(PIECES, max_size=14).map("".join))
def test_blanks_never_tell_kernels_apart(name):
    assert normalize(name.replace(", ", ",").replace("*", " *")) == normalize(name.replace(", ", ","))


def real_names(path):
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        database.text_factory = lambda raw: raw.decode(errors="replace")
        present = [row[1] for row in database.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")]
        if "demangledName" not in present:
            return []
        query = "SELECT DISTINCT value FROM StringIds JOIN CUPTI_ACTIVITY_KIND_KERNEL ON StringIds.id = demangledName"
        return [name for (name,) in database.execute(query)]


@pytest.mark.parametrize(("path", "expected"), corpus.files("nsys-sqlite"))
def test_the_kernels_of_every_published_trace_stay_apart_and_name_no_cast(path, expected):
    del expected
    names = real_names(path)

    assert collisions(names) == ()
    for name in names:
        normal = normalize(name)
        assert normalize(normal) == normal
        assert not re.search(r"[<,]\((?:int|bool)\)| [*&]|instance|anonymous|  ", normal)


def test_the_cost_of_a_long_name_is_not_exponential():
    name = (
        "void cutlass::Kernel<"
        + ", ".join(f"cutlass::Shape<(int){i}, [lambda(int) (instance {i})]>" for i in range(500))
        + ">"
    )
    started = time.process_time()
    normalize(name)

    assert time.process_time() - started < 60


def test_kernels_that_share_a_form_are_reported_and_keep_their_names():
    names = ["triton_poi_fused_add_0", "triton_poi_fused_add_1", "gemm", "gemm"]

    assert groups(names) == {
        "triton_poi_fused_add": ("triton_poi_fused_add_0", "triton_poi_fused_add_1"),
        "gemm": ("gemm",),
    }
    assert collisions(names) == (
        "2 GPU kernels differ only in a changing part of their names: triton_poi_fused_add_0, triton_poi_fused_add_1",
    )


def test_a_kernel_with_another_number_is_renamed_and_neither_gone_nor_new():
    changes = compare(["triton_poi_fused_add_0", "gemm<(int)4>"], ["triton_poi_fused_add_7", "gemm<(int)4>", "copy"])

    assert changes.renamed == (("triton_poi_fused_add_0", "triton_poi_fused_add_7"),)
    assert (changes.added, changes.removed, changes.same_kernels) == (("copy",), (), False)
    assert compare(["a"], ["a"]).same_kernels


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("fill_0d1d", "fill_0d1"),
        ("fill_0d1d", "fill"),
        ("triton__0d", "triton_4"),
        ("k<f()::{lambda(int)#1}>(int)", "k<f()::[lambda(int) (instance 2)]>(int)"),
        ("k<__nv_dl_tag<int (*)(int, int), &main, 1u>>(int)", "k<__nv_dl_tag<int (*)(int, int), &main, 2u>>(int)"),
    ],
)
def test_what_may_be_a_changing_part_renames_a_kernel_that_is_alone_and_says_so(before, now):
    assert compare(["other", before], ["other", now]).renamed == ((before, now),)


def test_of_two_kernels_that_a_changing_part_may_rename_neither_is_chosen():
    assert compare(["pad_0d1d"], ["pad_0d1", "pad_01d"]).added == ("pad_0d1", "pad_01d")
    assert compare(["k<{lambda()#1}>"], ["k<{lambda()#2}>", "k<{lambda()#3}>"]).removed == ("k<{lambda()#1}>",)


def test_of_kernels_that_differ_only_in_a_number_one_more_is_new_and_one_less_is_gone():
    two, three = ([f"triton_poi_fused_add_{i}" for i in range(n)] for n in (2, 3))

    assert compare(two, three).added == ("triton_poi_fused_add_2",)
    assert compare(three, two).removed == ("triton_poi_fused_add_2",)
    assert not compare(three, two).same_kernels


def test_kernels_that_cannot_be_told_apart_are_matched_as_a_group_and_all_others_one_by_one():
    names = ["gemm<64>(int)", "gemm<128>(int)", "k<{lambda()#1}>", "k<{lambda()#2}>", "gone"]
    now = ["void gemm<(int)128>(int)", "gemm<64>(int)", "k<{lambda()#1}>", "k<{lambda()#2}>", "new"]

    assert matches(names, now) == (
        (("gemm<64>(int)",), ("gemm<64>(int)",)),
        (("gemm<128>(int)",), ("void gemm<(int)128>(int)",)),
        (("k<{lambda()#1}>",), ("k<{lambda()#1}>",)),
        (("k<{lambda()#2}>",), ("k<{lambda()#2}>",)),
        (("gone",), ()),
        ((), ("new",)),
    )
    assert matches(["f<4>(int)", "f<8>(int)"], ["f"]) == ((("f<4>(int)", "f<8>(int)"), ("f",)),)
    assert matches(["_Z1fv"], ["f()"]) == ()


@given(st.lists(PIECES, max_size=3).map("".join), st.data())
def test_every_kernel_of_both_traces_is_in_one_match(name, data):
    numbered = (f"{stem}_{i}" for stem in (name, "triton_red_a") for i in range(2))
    some = st.lists(st.sampled_from([name, *numbered, "f", "f<4>()"]))
    before, now = data.draw(some), data.draw(some)
    found = matches(before, now)
    if found or set(before) == set(now):
        assert sorted(a for mine, _ in found for a in mine) == sorted(set(before))
        assert sorted(b for _, theirs in found for b in theirs) == sorted(set(now))


def test_different_kernels_of_one_function_are_never_taken_for_one():
    changes = compare(["reduce<512, ns::Sum>(int)"], ["reduce<512, ns::Max>(int)"])

    assert (changes.renamed, changes.same_kernels) == ((), False)


def test_where_only_one_trace_has_demangled_names_a_bare_one_is_the_kernel_of_that_function():
    before, now = ["void at::native::<unnamed>::reduce<(int)512, ns::Sum>(ns::Sum)"], ["reduce"]

    assert compare(before, now).same_kernels
    assert compare(now, before).renamed == ((now[0], before[0]),)
    assert compare(["_ZN2ns6reduceEi"], now).same_kernels  # nothing can be said, so nothing is


def test_a_pattern_may_be_written_in_any_style():
    name = "void <unnamed>::build<(int)128, (int)4>(int *)"

    assert counts(name, ["build<128,4>"])
    assert counts(name, ["build<(int)128, (int)4>"])
    assert counts(name, ["(anonymous namespace)::build"])
    assert not counts(name, ["build<64"])
