#!/bin/sh
# The start script of an image: it sets up the environment, as Singularity's %runscript does.
set -eu
TOOL_HOME=/opt/tool
export TOOL_HOME PATH="$TOOL_HOME/bin:$PATH"
if [ "$#" -lt 3 ]; then
    echo "usage: run BIDS_DIR OUTPUT_DIR LEVEL" >&2
    exit 64
fi
. "$TOOL_HOME/environment"
exec heights "$@"
