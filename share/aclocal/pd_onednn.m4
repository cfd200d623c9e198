# PD_ONEDNN
# --with-onednn=DIR: oneDNN, version 2.6 or 3, in a folder with include and lib; without it where
# the compiler looks.  Substitutes ONEDNN_CPPFLAGS and ONEDNN_LIBS.
AC_DEFUN([PD_ONEDNN], [
	AC_ARG_WITH([onednn], AS_HELP_STRING([--with-onednn=DIR],
		[oneDNN 2.6 or 3: a folder with include and lib (default: the system's)]),
		[], [with_onednn=yes])
	ONEDNN_CPPFLAGS= pd_onednn_where=
	pd_save_CPPFLAGS=$CPPFLAGS pd_save_LDFLAGS=$LDFLAGS
	AS_CASE([$with_onednn],
		[yes], [],
		[no], [AC_MSG_ERROR([--with-onednn=no: the CPU device needs it])],
		[AS_IF([test ! -r "$with_onednn/include/oneapi/dnnl/dnnl.h"],
			[AC_MSG_ERROR([--with-onednn=$with_onednn: no include/oneapi/dnnl/dnnl.h there])])
		 ONEDNN_CPPFLAGS="-isystem $with_onednn/include"
		 pd_onednn_where="-L$with_onednn/lib -Wl,-rpath,$with_onednn/lib"
		 CPPFLAGS="$CPPFLAGS $ONEDNN_CPPFLAGS" LDFLAGS="$LDFLAGS $pd_onednn_where"])
	PD_REQUIRE([oneDNN], [oneapi/dnnl/dnnl.h], [dnnl_primitive_create], [dnnl], [libdnnl-dev])
	AC_MSG_CHECKING([for the version of oneDNN])
	AC_COMPUTE_INT([pd_onednn_major], [DNNL_VERSION_MAJOR], [[#include <oneapi/dnnl/dnnl.h>]],
		[pd_onednn_major=0])
	AC_COMPUTE_INT([pd_onednn_minor], [DNNL_VERSION_MINOR], [[#include <oneapi/dnnl/dnnl.h>]],
		[pd_onednn_minor=0])
	AC_MSG_RESULT([$pd_onednn_major.$pd_onednn_minor])
	AS_IF([test "$pd_onednn_major" -lt 2 ||
	       { test "$pd_onednn_major" -eq 2 && test "$pd_onednn_minor" -lt 6; }],
		[AC_MSG_ERROR([oneDNN $pd_onednn_major.$pd_onednn_minor: expected 2.6 or later])])
	CPPFLAGS=$pd_save_CPPFLAGS LDFLAGS=$pd_save_LDFLAGS
	ONEDNN_LIBS="$pd_onednn_where $ONEDNN_LIBS"
	AC_SUBST([ONEDNN_CPPFLAGS])
])
