"""Checks of what a vendor says about itself: its profile, and what the profile depends on."""

from __future__ import annotations

from hami.policy.profile.profile_rules import profile_problems
from hami.testing.subject import Subject, registry


class ProfileRules:
    """A profile is valid and depends on the configuration alone."""

    def test_the_profile_follows_the_rules(self, subject: Subject) -> None:
        """Key, resource names, annotation keys and numbers are what the registry takes."""
        problems = profile_problems(subject.profile)
        assert not problems, f"profile of {subject.profile.key}: {'; '.join(problems)}"

    def test_the_same_config_names_the_same_vendors(self, subject: Subject) -> None:
        """``hami_vendors`` depends on its config alone."""
        again = registry({"plugin": subject.plugin}, subject.config)
        assert again.profiles == subject.vendors.profiles, (
            "hami_vendors gave other profiles when it was asked again with the same config"
        )

    def test_the_plugin_does_without_its_section(self, subject: Subject) -> None:
        """A device configuration that says nothing of this plugin is no reason to fail."""
        registry({"plugin": subject.plugin})
