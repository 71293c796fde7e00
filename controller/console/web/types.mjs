// Writes src/schema.d.ts, the types of the public API, from the OpenAPI document that the controller serves.
import { readFile, writeFile } from 'node:fs/promises'
import openapiTS, { astToString } from 'openapi-typescript'
import swagger2openapi from 'swagger2openapi'

const two = JSON.parse(await readFile(new URL('../../../api/openapi/ingot.json', import.meta.url), 'utf8'))
const { openapi } = await swagger2openapi.convertObj(two, { patch: true, warnOnly: true })
openapi.paths = {}
await writeFile(new URL('src/schema.d.ts', import.meta.url), astToString(await openapiTS(openapi)))
