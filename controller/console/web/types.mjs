// Writes src/schema.d.ts, the types of the public API, from the OpenAPI document that the controller serves.
import { readFile, writeFile } from 'node:fs/promises'
import openapiTS, { astToString } from 'openapi-typescript'

const openapi = JSON.parse(await readFile(new URL('../../../api/openapi/ingot.json', import.meta.url), 'utf8'))
openapi.paths = {}
await writeFile(new URL('src/schema.d.ts', import.meta.url), astToString(await openapiTS(openapi)))
