#!/bin/sh
echo fixed
