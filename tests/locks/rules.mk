# tests/locks: locks as builds have them that check them.
$(call obj,$(wildcard tests/locks/*.cpp)): OBJ_FLAGS = -DLMS_CHECK_LOCKS
