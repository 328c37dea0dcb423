"""Files and directories that others write to while we do."""

from __future__ import annotations

import os

import pytest
from hami_nvidia.handover.files import remove_tree

DEEP = 3000
"""Levels: more than Python recurses, and a path of more than PATH_MAX."""


def nested(top, levels, name="a" * 50):
    """As a program does it that enters each directory it makes."""
    top.mkdir()
    inner = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=inner)
        outer, inner = inner, os.open(name, os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)


def test_a_tree_is_removed_however_deep_it_is(tmp_path):
    nested(tmp_path / "tree", DEEP)
    remove_tree(tmp_path / "tree")
    assert list(tmp_path.iterdir()) == []


def test_everything_in_it_goes_and_nothing_else(tmp_path):
    tree, victim = tmp_path / "tree", tmp_path / "victim"
    victim.mkdir()
    (victim / "kept").touch()
    nested(tree, 3)
    (tree / "file").write_text("x")
    (tree / "to a directory").symlink_to(victim)
    (tree / "to nothing").symlink_to("nowhere")
    os.mkfifo(tree / "fifo")
    remove_tree(tree)
    assert [path.name for path in tmp_path.iterdir()] == ["victim"]
    assert (victim / "kept").exists()


def test_one_that_is_not_there_is_removed(tmp_path):
    remove_tree(tmp_path / "gone")


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "tree").symlink_to("victim")
    with pytest.raises(OSError, match="tree"):
        remove_tree(tmp_path / "tree")
    assert (tmp_path / "victim").exists()
