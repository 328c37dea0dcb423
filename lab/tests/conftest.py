"""Fixtures of several tests here."""

from __future__ import annotations

from tests.conftest import install

__all__ = ["install"]
