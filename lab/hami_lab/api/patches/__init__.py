"""The four sorts of PATCH as functions from an object and a patch to an object. No I/O."""
