# tests/locks: locks as builds have them that check them.
$(call every_obj,$(wildcard tests/locks/*.cpp)): OBJ_FLAGS = -DLMS_CHECK_LOCKS
