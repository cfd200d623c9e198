# PD_REQUIRE(NAME, HEADER, FUNCTION, LIBRARY, DEBIAN-PACKAGE, [OTHER-LIBS])
# Finds a library that the project cannot do without; sets and substitutes NAME_LIBS
# (the name in capitals).
AC_DEFUN([PD_REQUIRE], [
	AC_CHECK_HEADER([$2], [],
		[AC_MSG_ERROR([$1 not found: no header $2 (Debian package $5)])])
	AC_CHECK_LIB([$4], [$3], [AS_TR_CPP([$1])_LIBS="-l$4 $6"],
		[AC_MSG_ERROR([$1 not found: no $3 in lib$4 (Debian package $5)])], [$6])
	AC_SUBST(AS_TR_CPP([$1])[_LIBS])
])
