// Package catalog owns which images runs may name, who may manage them, and when
// garbage among them is collected. The images are in a store that it is given.
//
// It must never let a caller bring in, rename or remove an image that the
// configuration does not name a manager: whoever chooses what a name stands for
// chooses the interpreter of everybody's runs. It must never open a path that a
// caller names; archives come as streams.
//
// At most one import is under way. Stop ends it, and waits.
//
// Proven by TestManage_IsForManagers, TestHold_ObeysAllowed and
// TestImport_OneAtATime.
package catalog
