/* SPDX-License-Identifier: Apache-2.0 */
/* Networks on which UCX reaches other hosts without TCP. */
#pragma once

#include <stdbool.h>

/* Two hosts reach each other where both have one of them. */
struct pd_ucx_fabrics { bool infiniband, roce; };

/* Those to which this host has a port that is up. */
struct pd_ucx_fabrics pd_ucx_fabrics(void);
